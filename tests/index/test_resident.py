"""Exact search as a GPU does it, on the CPU and on a GPU if there is one, beside numpy that looks at everything."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.index import resident
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.index.on_device import DeviceIndex
from knnmt.index.resident import GROUP, ResidentKeys, nearest_groups
from knnmt.index.store_index import StoreIndex
from support.devices import DEVICES, captured, without_waiting
from support.index_stores import all_keys, append_keys, assert_exact, brute_force, clustered, write_store


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """So that small stores have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resident, "_BLOCK", 2 * resident._PADDED)
        patch.setattr(resident, "BLOCK_BYTES", 1 << 16)
        patch.setattr(resident, "LOADED", 300)
        yield


def even(pair: SegmentPair) -> bool:
    return int(pair.origin.partition("#")[2]) % 2 == 0


def search(
    store: Datastore, queries: Tensor, k: int, device: str, first: int = 0, last: int | None = None
) -> SearchResult:
    distances_sq, ids = DeviceIndex(Entries(store), device, first, last).search(queries.to(device), k)
    assert distances_sq.device.type == ids.device.type == device
    return distances_sq.cpu(), ids.cpu()


@pytest.mark.parametrize("device", DEVICES)
@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=5),
    dim=st.sampled_from([1, 5, 6, 32]),
    k=st.integers(1, 12),
    key_dtype=st.sampled_from(["float16", "float32"]),
    gone=st.sampled_from([0, 3, 100]),
    seed=st.integers(0, 99),
)
def test_it_is_exact(device: str, sizes: list[int], dim: int, k: int, key_dtype: str, gone: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    keys = np.round(chance.normal(size=(sum(sizes), dim)), 1).astype(np.float32)  # coarse: duplicates and ties
    with tempfile.TemporaryDirectory() as directory:
        store = write_store(Path(directory) / "store", np.split(keys, np.cumsum(sizes)[:-1]), key_dtype)
        store.remove(lambda pair: bool(chance.integers(100) < gone))
        queries = torch.from_numpy(chance.normal(size=(3, dim)).astype(np.float32))
        queries[0] = torch.from_numpy(all_keys(store)[0])
        slack_sq = 0.0
        if dim < 32:  # where more keys are all but equally near than there are candidates beyond k
            mean = all_keys(store).mean(0)
            lengths = [np.linalg.norm(each - mean, axis=1).max() for each in (all_keys(store), queries.numpy())]
            slack_sq = 2.0 ** (-9 if key_dtype == "float16" else -8) * float(np.prod(lengths))
        assert_exact(search(store, queries, k, device), store, queries, k, slack_sq)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key_dtype", ["float16", "float32"])
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (30, 1), (1000, 1), (0, 1e-3), (-5, 100)])
def test_wherever_the_keys_lie(tmp_path: Path, device: str, key_dtype: str, offset: float, scale: float) -> None:
    """Were the mean not taken off the queries, halves of them would tell nothing apart at an offset of 1000."""
    store = write_store(tmp_path / "store", [scale * clustered(3000) + offset], key_dtype)
    queries = torch.from_numpy(scale * clustered(70, seed=3) + offset).float()
    expected_sq, _ = brute_force(store, queries, 8)
    _, ids = search(store, queries, 8, device)
    own_sq = ((queries.double().numpy()[:, None] - all_keys(store)[ids].astype(np.float64)) ** 2).sum(-1)
    np.testing.assert_allclose(own_sq, expected_sq, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_large_keys_close_together_are_told_apart(tmp_path: Path, device: str) -> None:
    """The scan has lost all the digits that matter here; the candidates beyond k make up for it."""
    chance = np.random.default_rng(0)
    keys = (200 + 0.01 * chance.normal(size=(10, 32))).astype(np.float32)
    far = chance.normal(size=(3000, 32)).astype(np.float32)
    store = write_store(tmp_path / "store", [np.concatenate([keys, far])], "float32")
    queries = torch.from_numpy(keys[:5])
    distances_sq, ids = search(store, queries, 4, device)
    assert ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert (distances_sq[:, 0] == 0).all()
    assert_exact((distances_sq, ids), store, queries, 4)


@given(
    rows=st.integers(1, 9),
    padded=st.integers(1, 12),
    block=st.integers(1, 4),
    count=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_nearest_groups_hold_the_nearest_keys(rows: int, padded: int, block: int, count: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    keys = chance.integers(-4, 5, (256 * padded, 8)).astype(np.float16)
    asked = chance.integers(-4, 5, (rows, 8)).astype(np.float16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resident, "_BLOCK", 256 * block)
        patch.setattr(resident, "BLOCK_BYTES", 1)
        members = nearest_groups(torch.from_numpy(asked), torch.from_numpy(keys), count).numpy()
    scores = asked.astype(np.float32) @ keys.astype(np.float32).T
    assert members.shape == (rows, GROUP * min(count, len(keys) // GROUP))
    for mine, all_scores in zip(members, scores, strict=True):
        assert len(set(mine.tolist())) == len(mine)
        assert sorted(all_scores[mine])[:count] == sorted(all_scores)[:count]


@pytest.mark.parametrize("device", DEVICES)
def test_part_of_the_entries_and_none(tmp_path: Path, device: str) -> None:
    store = write_store(tmp_path / "store", [clustered(50), clustered(600, seed=1)])
    queries = torch.from_numpy(clustered(5, seed=3))
    _, ids = search(store, queries, 9, device, 40, 60)
    assert ((ids >= 40) & (ids < 60)).all()
    _, ids = search(store, queries, 30, device, 40, 60)
    assert (ids[:, 20:] == -1).all()
    distances_sq, ids = search(store, queries, 3, device, 650)
    assert (ids == -1).all()
    assert distances_sq.isinf().all()
    assert search(store, queries[:0], 3, device)[1].shape == (0, 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limit", ["_MINIMA_BYTES", "_MEASURED_BYTES"])
def test_many_rows_are_searched_some_at_a_time(
    tmp_path: Path, device: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [clustered(700)])
    queries = torch.from_numpy(clustered(70, seed=3))
    monkeypatch.setattr(resident, limit, 1 << 10)
    once, searched = ResidentKeys._search, []

    def counted(keys: ResidentKeys, rows: Tensor, k: int) -> SearchResult:
        searched.append(len(rows))
        return once(keys, rows, k)

    monkeypatch.setattr(ResidentKeys, "_search", counted)
    assert_exact(search(store, queries, 8, device), store, queries, 8)
    assert len(searched) > 1


@pytest.mark.parametrize("device", DEVICES)
def test_a_later_snapshot_keeps_what_is_loaded_and_forgets_what_was_removed(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [clustered(400)])
    queries = torch.from_numpy(clustered(5, seed=3))
    index = DeviceIndex(Entries(store), device)
    with torch.inference_mode():
        index.search(queries.to(device), 9)
    store.remove(even)
    later = index.at(Entries(store))
    monkeypatch.setattr(ResidentKeys, "__init__", lambda *_: pytest.fail("loaded again"))
    found = later.search(queries.to(device), 9)
    assert_exact((found[0].cpu(), found[1].cpu()), store, queries, 9)


@pytest.mark.cuda
def test_a_living_store_on_a_gpu(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(1500), clustered(500, seed=1)])
    queries = torch.from_numpy(clustered(20, seed=9))
    index = StoreIndex(store, "cuda")
    index.search(queries.cuda(), 8)
    append_keys(store.path, clustered(100, seed=2))
    store.remove(even)
    index.refresh()
    assert index.description.startswith("exact")
    distances_sq, ids = index.search(queries.cuda(), 8)
    assert_exact((distances_sq.cpu(), ids.cpu()), store, queries, 8)


@pytest.mark.cuda
@pytest.mark.parametrize("key_dtype", ["float16", "float32"])
def test_a_search_never_waits_and_can_be_captured(tmp_path: Path, key_dtype: str) -> None:
    store = write_store(tmp_path / "store", [clustered(3000)], key_dtype)
    index = DeviceIndex(Entries(store), "cuda")
    asked = torch.from_numpy(clustered(20, seed=9)).cuda()
    index.search(asked, 8)
    with without_waiting():
        index.search(asked, 8)
    replay, (distances_sq, ids) = captured(lambda: index.search(asked, 8))
    for seed in (10, 11):
        queries = torch.from_numpy(clustered(20, seed=seed))
        asked.copy_(queries)
        replay()
        assert_exact((distances_sq.cpu(), ids.cpu()), store, queries, 8)
    store.remove(even)
    index.at(Entries(store))
    replay()
    assert_exact((distances_sq.cpu(), ids.cpu()), store, queries, 8)


@pytest.mark.parametrize("device", DEVICES)
def test_a_store_in_which_what_was_removed_is_back(tmp_path: Path, device: str) -> None:
    """As from a backup: the same segments, of which fewer entries are gone."""
    queries = torch.from_numpy(clustered(5, seed=3))
    whole, less = (write_store(tmp_path / name, [clustered(400)]) for name in ("whole", "less"))
    less.remove(even)
    for clustering in (False, True):
        index = DeviceIndex(Entries(less), device, clustered=clustering)
        index.search(queries.to(device), 9)
        distances_sq, ids = index.at(Entries(whole)).search(queries.to(device), 9)
        assert_exact((distances_sq.cpu(), ids.cpu()), whole, queries, 9)
