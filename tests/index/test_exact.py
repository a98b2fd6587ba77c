"""Exact search and what it is made of, beside numpy that looks at everything."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError
from knnmt.index.base import merge_top_k, nearest_first
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex, rerank, smallest
from knnmt.index.on_device import DeviceIndex
from support.devices import DEVICES
from support.index_stores import all_keys, append_keys, assert_exact, clustered, write_store


@given(rows=st.integers(1, 4), width=st.integers(1, 3000), k=st.integers(1, 40), seed=st.integers(0, 99))
def test_smallest_finds_the_smallest(rows: int, width: int, k: int, seed: int) -> None:
    values = torch.from_numpy(
        np.random.default_rng(seed).integers(0, 50, (rows, width)).astype(np.float32)
    )  # many ties
    best, columns = smallest(values, k)
    assert torch.equal(best.sort(dim=1).values, values.sort(dim=1).values[:, :k])
    assert torch.equal(values.gather(1, columns), best)
    assert all(len(set(row)) == len(row) for row in columns.tolist())


@given(widths=st.lists(st.integers(0, 6), min_size=1, max_size=4), k=st.integers(1, 10), seed=st.integers(0, 99))
def test_merging_is_sorting_it_all(widths: list[int], k: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    first = np.cumsum([0, *widths])
    parts = []
    for width, begin in zip(widths, first, strict=False):
        distances_sq = torch.from_numpy(chance.integers(0, 5, (3, width)).astype(np.float32))
        ids = torch.arange(begin, begin + width).repeat(3, 1)
        ids[torch.from_numpy(chance.random((3, width)) < 0.3)] = -1
        parts.append((distances_sq, ids))
    distances_sq, ids = merge_top_k(parts, k)
    assert distances_sq.shape == ids.shape == (3, k)
    for row in range(3):
        there = {int(i): float(d) for ds, each in parts for d, i in zip(ds[row], each[row], strict=True) if i >= 0}
        expected = sorted(there.values())[:k]
        assert distances_sq[row].tolist() == expected + [float("inf")] * (k - len(expected))
        found = [i for i in ids[row].tolist() if i >= 0]
        assert [there[i] for i in found] == expected
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("some_missing", [True, False])
def test_what_is_no_number_is_not_found(some_missing: bool) -> None:
    distances_sq = torch.tensor([[float("nan"), 2.0, float("inf"), 1.0], [float("nan")] * 4])
    best, ids = nearest_first(distances_sq, torch.tensor([[3, 7, 8, 9], [1, 2, 3, 4]]), 3, some_missing)
    assert best.tolist() == [[1.0, 2.0, float("inf")], [float("inf")] * 3]
    assert ids.tolist() == [[9, 7, -1], [-1] * 3]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("on_device", [False, True])
def test_a_key_that_is_no_number_is_damage(tmp_path: Path, device: str, on_device: bool) -> None:
    """Sound keys that are looked at together with it would not be found."""
    keys = clustered(200)
    keys[70, 3] = float("nan")
    entries = Entries(write_store(tmp_path / "s", [keys]))
    index = DeviceIndex(entries, device) if on_device else ExactIndex(entries)
    with pytest.raises(DatastoreDamagedError, match=r"s: the key of an entry is not a finite number.*knnmt verify"):
        index.search(torch.from_numpy(clustered(3, seed=1)), 4)


def test_what_faiss_gives_for_nothing_counts_as_nothing() -> None:
    distances_sq, ids = nearest_first(torch.tensor([[3.4e38, 2.0, -1.0]]), torch.tensor([[-1, 7, -1]]), 2)
    assert ids.tolist() == [[7, -1]]
    assert distances_sq.tolist() == [[2.0, float("inf")]]


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    dim=st.sampled_from([1, 5, 32]),
    k=st.integers(1, 12),
    key_dtype=st.sampled_from(["float16", "float32"]),
    gone=st.sampled_from([0, 3, 100]),
    seed=st.integers(0, 99),
)
def test_exact_search_is_exact(sizes: list[int], dim: int, k: int, key_dtype: str, gone: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    keys = np.round(chance.normal(size=(sum(sizes), dim)), 1).astype(np.float32)  # coarse: duplicates and ties
    with tempfile.TemporaryDirectory() as directory:
        store = write_store(Path(directory) / "store", np.split(keys, np.cumsum(sizes)[:-1]), key_dtype)
        store.remove(lambda pair: bool(chance.integers(100) < gone))
        queries = torch.from_numpy(chance.normal(size=(3, dim)).astype(np.float32))
        queries[0] = torch.from_numpy(all_keys(store)[0])
        assert_exact(ExactIndex(Entries(store)).search(queries, k), store, queries, k)


def test_exact_search_over_many_blocks_and_rows(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(17_000, 2), clustered(30, 2, 1), clustered(17_000, 2, 2)])
    queries = torch.from_numpy(clustered(270, 2, 3))
    assert_exact(ExactIndex(Entries(store)).search(queries, 8), store, queries, 8)


def test_large_keys_close_together_are_told_apart(tmp_path: Path) -> None:
    """|k|² - 2 q·k alone has lost all the digits that matter here."""
    chance = np.random.default_rng(0)
    keys = (200 + 0.01 * chance.normal(size=(40, 32))).astype(np.float32)
    far = chance.normal(size=(3000, 32)).astype(np.float32)
    store = write_store(tmp_path / "store", [np.concatenate([keys[:10], far])], "float32")
    queries = torch.from_numpy(keys[:5])
    distances_sq, ids = ExactIndex(Entries(store)).search(queries, 4)
    assert ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert (distances_sq[:, 0] == 0).all()
    assert_exact((distances_sq, ids), store, queries, 4)


def test_part_of_the_entries(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(50), clustered(60, seed=1), clustered(70, seed=2)])
    queries = torch.from_numpy(clustered(5, seed=3))
    entries = Entries(store)
    cuts = [0, 20, 55, 110, 180]
    parts = [ExactIndex(entries, a, b).search(queries, 9) for a, b in pairwise(cuts)]
    for (_, ids), first, last in zip(parts, cuts, cuts[1:], strict=False):
        assert ((ids >= first) & (ids < last)).all()
    assert_exact(merge_top_k(parts, 9), store, queries, 9)


def test_a_later_snapshot_keeps_what_is_loaded_and_forgets_what_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [clustered(400)])
    queries = torch.from_numpy(clustered(5, seed=3))
    index = ExactIndex(Entries(store))
    index.search(queries, 9)
    store.remove(lambda pair: int(pair.origin.partition("#")[2]) % 2 == 0)
    later = index.at(Entries(store))
    monkeypatch.setattr(ExactIndex, "_load", lambda self: pytest.fail("loaded again"))
    assert_exact(later.search(queries, 9), store, queries, 9)


def test_distances_can_be_learnt_from(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(40)])
    distances_sq, _ = ExactIndex(Entries(store)).search(torch.from_numpy(clustered(5, seed=3)), 4)
    torch.nn.Linear(4, 1)(distances_sq).sum().backward()


def test_reranking_measures_candidates_with_the_stores_keys(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(50), clustered(60, seed=1)])
    queries = torch.from_numpy(clustered(2, seed=3))
    candidates = torch.tensor([[100, 3, -1, 70, 20], [-1, -1, -1, 109, -1]])
    distances_sq, ids = rerank(queries, candidates, Entries(store), 3)
    true_sq = ((queries[0].numpy() - all_keys(store)[[100, 3, 70, 20]]) ** 2).sum(1)
    order = np.argsort(true_sq)[:3]
    assert ids[0].tolist() == np.array([100, 3, 70, 20])[order].tolist()
    np.testing.assert_allclose(distances_sq[0], true_sq[order], rtol=1e-5)
    assert ids[1].tolist() == [109, -1, -1]


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    size=st.integers(1, 50),
    first=st.integers(0, 100),
    length=st.integers(0, 300),
    seed=st.integers(0, 99),
)
def test_entries_by_id_and_in_blocks(sizes: list[int], size: int, first: int, length: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    keys = chance.normal(size=(sum(sizes), 3)).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        store = write_store(Path(directory) / "store", np.split(keys, np.cumsum(sizes)[:-1]), "float32")
        entries = Entries(store)
        ids = chance.integers(0, len(keys), 20)
        assert (entries.keys_of(ids) == keys[ids]).all()
        for beyond in (len(keys), -1):
            with pytest.raises(IndexError):
                entries.keys_of(np.array([0, beyond]))
        numbers, sentences = entries.sentence_of(ids)
        for entry, number, sentence in zip(ids.tolist(), numbers, sentences, strict=True):
            assert store.entry(entry).pair == entries.segments[number].pair(sentence)
        first = min(first, len(keys))
        last = min(first + length, len(keys))
        blocks = list(entries.blocks(size, first, last))
        assert all(1 <= len(block) <= size for _, block in blocks)
        assert [i for begin, block in blocks for i in range(begin, begin + len(block))] == list(range(first, last))
        assert all((block == keys[begin : begin + len(block)]).all() for begin, block in blocks)
        small = [len(block) for _, block in blocks]
        assert all(a + b > size for a, b in pairwise(small))  # neighbours that fit are joined


def test_values_are_taken_over_from_an_earlier_snapshot(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(50), clustered(60, seed=1)])
    earlier = Entries(store)
    append_keys(tmp_path / "store", clustered(33, seed=2))
    store.refresh()
    later = Entries(store, earlier)
    assert later.values.tolist() == Entries(Datastore.open(tmp_path / "store")).values.tolist()
    assert later.values[-1] == (32 + 2 * 37) % 100
    assert (later.entries, earlier.entries) == (143, 110)


def test_an_empty_stretch_gives_nothing(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(50)])
    distances_sq, ids = ExactIndex(Entries(store), 50).search(torch.zeros(2, 32), 3)
    assert ids.tolist() == [[-1] * 3] * 2
    assert distances_sq.isinf().all()
