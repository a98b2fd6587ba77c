"""Own entries in work that can be recorded: each row finds the nearest of its own sentence's entries, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.datastore.arrays import Array
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval import sentence_search_on_device
from knnmt.retrieval.sentence_search_on_device import SentenceKeys, SentenceSearchOnDevice, can_serve
from support.devices import DEVICES, captured, without_waiting
from support.made_stores import made_store, random_keys, random_values

ENTRIES = 6000


def sentences_of(*sizes: int) -> list[Array]:
    generator = np.random.default_rng(5)
    return [np.sort(generator.choice(ENTRIES, size, replace=False)).astype(np.int64) for size in sizes]


def one_by_one(keys: Array, chosen: list[Array], queries: torch.Tensor, k: int) -> tuple[Array, Array]:
    """Distances and ids (rows, k) by sorting all: of equal distances the smaller id."""
    width = len(queries) // len(chosen)
    distances_sq, ids = np.full((len(queries), k), np.inf), np.full((len(queries), k), -1)
    for row, query in enumerate(queries.double().numpy()):
        mine = chosen[row // width]
        apart = ((keys[mine].astype(np.float64) - query) ** 2).sum(1)
        order = np.lexsort((mine, apart))[:k]
        order = order[np.isfinite(apart[order])]
        distances_sq[row, : len(order)], ids[row, : len(order)] = apart[order], mine[order]
    return distances_sq, ids


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dim", "width"), [(8, 1), (20, 5), (320, 5), (72, 11)])
def test_each_row_finds_the_nearest_of_its_own(tmp_path: Path, device: str, dim: int, width: int) -> None:
    keys = random_keys(ENTRIES, dim).astype(np.float16)
    index = StoreIndex(made_store(tmp_path / "s", keys, random_values(ENTRIES)), device, exact=True).snapshot
    chosen = sentences_of(700, 0, 3, 2900, 64)
    queries = torch.randn((len(chosen) * width, dim), generator=torch.Generator().manual_seed(1))
    queries[0] = float("nan")
    assert can_serve(index.entries, 16, torch.device(device))
    memory = SentenceKeys(dim, torch.device(device))
    own = SentenceSearchOnDevice(memory, dim, len(chosen) + 1)
    own.begin(memory.put(index, chosen))
    blank = torch.zeros((width, dim))
    found_sq, found = (each.cpu() for each in own.search(torch.cat([queries, blank]).to(device), 16))
    expected_sq, expected = one_by_one(keys, chosen, queries, 16)
    np.testing.assert_allclose(found_sq[: len(queries)].numpy(), expected_sq, rtol=1e-5)
    for row, (mine, other, apart) in enumerate(zip(found.numpy(), expected, expected_sq, strict=False)):
        # Distances that differ in the last digit alone may come in either order.
        assert {*mine} == {*other} or np.isclose(apart[-1], apart[-2], rtol=1e-5), row
        true = ((keys[mine[mine >= 0]].astype(np.float64) - queries[row].double().numpy()) ** 2).sum(1)
        np.testing.assert_allclose(true, apart[mine >= 0], rtol=1e-5)
    assert (found[len(queries) :] == -1).all()
    assert found_sq[len(queries) :].isinf().all()


@pytest.mark.parametrize("device", DEVICES)
def test_sentences_move_and_leave(tmp_path: Path, device: str) -> None:
    keys = random_keys(ENTRIES, 16).astype(np.float16)
    index = StoreIndex(made_store(tmp_path / "s", keys, random_values(ENTRIES)), device, exact=True).snapshot
    chosen = sentences_of(40, 500, 9, 33)
    memory = SentenceKeys(16, torch.device(device))
    before, after = (SentenceSearchOnDevice(memory, 16, sentences) for sentences in (4, 2))
    before.begin(memory.put(index, chosen))
    after.go_on(before, torch.tensor([3, 1], device=device), 2)
    queries = torch.randn((6, 16), generator=torch.Generator().manual_seed(1))
    _, found = after.search(queries.to(device), 12)
    np.testing.assert_array_equal(found.cpu().numpy(), one_by_one(keys, [chosen[3], chosen[1]], queries, 12)[1])


@pytest.mark.parametrize("device", DEVICES)
def test_blanks_disturb_nobody(tmp_path: Path, device: str) -> None:
    """They are copies of the first sentence, and ask otherwise: they must not write where its scores are."""
    keys = random_keys(ENTRIES, 16).astype(np.float16)
    index = StoreIndex(made_store(tmp_path / "s", keys, random_values(ENTRIES)), device, exact=True).snapshot
    chosen = sentences_of(40, 500, 9, 2000)
    memory = SentenceKeys(16, torch.device(device))
    before, after = SentenceSearchOnDevice(memory, 16, 4), SentenceSearchOnDevice(memory, 16, 5)
    before.begin(memory.put(index, chosen))
    after.go_on(before, torch.tensor([3, 1, 3, 3, 3], device=device), 2)
    queries = torch.randn((40, 16), generator=torch.Generator().manual_seed(1))
    _, found = after.search(queries.to(device), 12)
    expected = one_by_one(keys, [chosen[3], chosen[1]], queries[:16], 12)[1]
    np.testing.assert_array_equal(found[:16].cpu().numpy(), expected)
    assert (found[16:] == -1).all()


@pytest.mark.parametrize("device", DEVICES)
def test_keys_that_do_not_fit_on_the_device_come_from_the_host(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = random_keys(ENTRIES, 16).astype(np.float16)
    index = StoreIndex(made_store(tmp_path / "s", keys, random_values(ENTRIES)), device, exact=True).snapshot
    monkeypatch.setattr(sentence_search_on_device, "_resident", lambda *_: False)
    memory = SentenceKeys(16, torch.device(device))
    [chosen] = sentences_of(5000)
    memory.put(index, [chosen])
    np.testing.assert_array_equal(memory.keys[:5000, :16].cpu().numpy(), keys[chosen])


@pytest.mark.parametrize("device", DEVICES)
def test_memory_grows_and_says_so(tmp_path: Path, device: str) -> None:
    keys = random_keys(ENTRIES, 12).astype(np.float16)
    index = StoreIndex(made_store(tmp_path / "s", keys, random_values(ENTRIES)), device, exact=True).snapshot
    memory = SentenceKeys(12, torch.device(device))
    first = memory.number
    memory.put(index, sentences_of(5000))
    assert memory.number == first
    chosen = sentences_of(*[5000] * 8)
    assert memory.put(index, chosen)[-1].tolist() == [35_000, 40_000]
    assert memory.number != first
    np.testing.assert_array_equal(memory.keys[39_000:40_000, :12].cpu().numpy(), keys[chosen[-1][-1000:]])
    assert not memory.keys[:, 12:].any()


@pytest.mark.cuda
@pytest.mark.parametrize("k", [3, 1016])
def test_many_equal_distances_are_taken_in_the_order_of_their_ids(tmp_path: Path, k: int) -> None:
    """More than the list holds: of 3,000 keys the last 2,000 are equally near, and ten are nearer."""
    keys = np.ones((3000, 8), np.float16) * 4
    keys[:1000] = 30
    keys[500:510] = 2
    values = np.arange(3000, dtype=np.int32) % 50
    index = StoreIndex(made_store(tmp_path / "s", keys, values), "cuda", exact=True).snapshot
    memory = SentenceKeys(8, torch.device("cuda"))
    own = SentenceSearchOnDevice(memory, 8, 1)
    chosen = [np.arange(3000)]
    own.begin(memory.put(index, chosen))
    _, found = own.search(torch.zeros((2, 8), device="cuda"), k)
    np.testing.assert_array_equal(found.cpu().numpy(), one_by_one(keys, chosen, torch.zeros((2, 8)), k)[1])


@pytest.mark.cuda
def test_a_captured_search_serves_other_sentences(tmp_path: Path) -> None:
    keys = random_keys(ENTRIES, 16).astype(np.float16)
    index = StoreIndex(made_store(tmp_path / "s", keys, random_values(ENTRIES)), "cuda", exact=True).snapshot
    memory = SentenceKeys(16, torch.device("cuda"))
    own = SentenceSearchOnDevice(memory, 16, 2)
    own.begin(memory.put(index, sentences_of(40, 500)))
    queries = torch.randn((10, 16), device="cuda")
    own.search(queries, 8)
    with without_waiting():
        own.search(queries, 8)
    replay, (_, found) = captured(lambda: own.search(queries, 8))
    chosen = sentences_of(2222, 7)
    own.begin(memory.put(index, chosen))
    queries.copy_(torch.randn((10, 16), generator=torch.Generator().manual_seed(2)))
    replay()
    np.testing.assert_array_equal(found.cpu().numpy(), one_by_one(keys, chosen, queries.cpu(), 8)[1])
