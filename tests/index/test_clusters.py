"""Clustered search as a GPU does it, on the CPU and on a GPU if there is one, beside numpy that looks at everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.pairs import SegmentPair
from knnmt.index import store_index
from knnmt.index.base import SearchResult
from knnmt.index.clusters import Clusters, kept_dimensions
from knnmt.index.entries import Entries
from knnmt.index.kinds import SearchSettings
from knnmt.index.on_device import DeviceIndex
from knnmt.index.resident import ResidentKeys
from knnmt.index.store_index import StoreIndex
from knnmt.index.tiles import TILE, principal_axes, shortened, tile_centres, tiled
from support.devices import DEVICES, captured, without_waiting
from support.index_stores import append_keys, assert_exact, clustered, recall, write_store

EVERYTHING = SearchSettings(probes=1 << 20, candidates=1 << 20)


def resident(keys: torch.Tensor, device: str = "cpu") -> ResidentKeys:
    return ResidentKeys([keys], len(keys), keys.shape[1], keys.dtype, torch.device(device))


def on_cpu(found: SearchResult) -> SearchResult:
    return found[0].cpu(), found[1].cpu()


def even(pair: SegmentPair) -> bool:
    return int(pair.origin.partition("#")[2]) % 2 == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key_dtype", ["float16", "float32"])
@pytest.mark.parametrize("count", [1, 70, 900, 3000])
def test_looking_into_everything_is_exact(tmp_path: Path, device: str, key_dtype: str, count: int) -> None:
    store = write_store(tmp_path / "store", [clustered(count) + 3], key_dtype)
    index = DeviceIndex(Entries(store), device, clustered=True)
    index.clusters.settings = EVERYTHING
    queries = torch.from_numpy(clustered(30, seed=3)) + 3
    assert_exact(on_cpu(index.search(queries.to(device), 8)), store, queries, 8)
    store.remove(even)
    assert_exact(on_cpu(index.at(Entries(store)).search(queries.to(device), 8)), store, queries, 8)
    assert index.search(queries[:0].to(device), 8)[1].shape == (0, 8)


@pytest.mark.parametrize("device", DEVICES)
def test_a_few_near_tiles_have_most_of_it(tmp_path: Path, device: str) -> None:
    store = write_store(tmp_path / "store", [clustered(8_000)])
    index = DeviceIndex(Entries(store), device, clustered=True)
    queries = torch.from_numpy(clustered(100, seed=3))
    found = {}
    for probes in (1, 3, 32):
        index.clusters.settings = SearchSettings(probes, 96)
        found[probes] = recall(on_cpu(index.search(queries.to(device), 8)), store, queries, 8)
    assert found[1] < found[3] <= found[32]
    assert found[32] > 0.95  # in a tenth of the keys
    assert 8_000 / (index.clusters.tiles * TILE) > 0.75  # little room is left


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("rows", "probes"), [(3, 2), (40, 5), (90, 20)])
def test_sharing_copies_of_tiles_changes_nothing(device: str, rows: int, probes: int) -> None:
    index = Clusters(resident(torch.from_numpy(clustered(2000)).half().to(device), device))
    near = torch.randint(index.tiles, (rows, probes), generator=torch.Generator().manual_seed(rows))
    near[: rows // 2, 0] = 1  # a tile that many look into
    near = near.to(device)
    asked = torch.randn((rows, index._scan.rows.shape[1]), generator=torch.Generator().manual_seed(1)).half().to(device)
    keys = index._scan.rows.view(-1, TILE, asked.shape[1]).float()
    expected = torch.stack([keys[tile] @ asked[i].float() for i, row in enumerate(near.tolist()) for tile in row])
    for shared, at_once in ((1, 7), (4, 10), (16, 1 << 14)):
        index.queries_per_tile, index.tiles_at_once = shared, at_once
        torch.testing.assert_close(index._scores(asked, near).view(-1, TILE), expected, rtol=1e-3, atol=1e-2)


def test_a_popular_tile_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Clusters(resident(torch.from_numpy(clustered(600)).half()))
    copied: list[int] = []
    copy = Clusters._copied

    def noted(self: Clusters, tiles: torch.Tensor) -> torch.Tensor:
        copied.append(tiles.numel())
        return copy(self, tiles)

    monkeypatch.setattr(Clusters, "_copied", noted)
    index.settings = replace(index.settings, probes=2)
    index.search(torch.from_numpy(clustered(3, seed=1)), 4)
    index.search(torch.from_numpy(clustered(400, seed=1)), 4)
    assert copied == [6, 800 // 16]


@given(count=st.integers(1, 3000), seed=st.integers(0, 99))
def test_every_key_stands_in_one_place(count: int, seed: int) -> None:
    keys = resident(torch.from_numpy(clustered(count, 8, seed)).half())
    short, _ = shortened(keys, principal_axes(keys, 4))
    ids = tiled(keys, short, seed)
    assert len(ids) % TILE == 0
    assert sorted(ids[ids >= 0].tolist()) == list(range(count))
    tiles = ids.view(-1, TILE)
    assert (tiles[:, 0] >= 0).all()  # none is empty
    for tile, centre in zip(tiles, tile_centres(keys, ids), strict=True):
        np.testing.assert_allclose(centre, keys.some(tile[tile >= 0]).mean(0), rtol=1e-3, atol=1e-4)
    assert torch.equal(ids, tiled(keys, short, seed))


def test_shortened_keys_are_principal_components() -> None:
    chance = np.random.default_rng(0)
    keys = (chance.normal(size=(500, 10)) * np.arange(1, 11) + 7).astype(np.float32)
    held = resident(torch.from_numpy(keys))
    short, norms_sq = shortened(held, principal_axes(held, 3))
    centred = held.centred(torch.from_numpy(keys)).numpy()
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    expected = np.abs(centred @ axes[:3].T)
    np.testing.assert_allclose(np.abs(short.float().numpy())[:, ::-1], expected, atol=0.05)
    np.testing.assert_allclose(norms_sq, (centred**2).sum(1), rtol=1e-4)


def test_shortened_keys_fill_whole_rows() -> None:
    assert [kept_dimensions(dim) for dim in (8, 64, 320, 512, 1024)] == [8, 61, 125, 253, 445]


@pytest.mark.cuda
def test_a_living_store_in_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New entries are searched exactly beside the clusters, until they are half as many; removed ones are gone."""
    monkeypatch.setattr(store_index, "_MIN_CLUSTERED_ENTRIES", 1000)
    store = write_store(tmp_path / "store", [clustered(2000)])
    queries = torch.from_numpy(clustered(20, seed=9))
    index = StoreIndex(store, "cuda")
    assert StoreIndex(store, "cuda", exact=True).clustered is None
    changes: list[tuple[int, Callable[[], object]]] = [
        (2000, lambda: append_keys(store.path, queries.numpy())),
        (2000, lambda: store.remove(even)),
        (3220, lambda: append_keys(store.path, clustered(1200, seed=2))),
    ]
    for part, change in changes:
        change()
        index.refresh()
        assert index.clustered is not None
        assert index.clustered.last == part
        index.clustered.clusters.settings = EVERYTHING
        assert_exact(on_cpu(index.search(queries.cuda(), 8)), store, queries, 8)
    assert index.signature == f"clusters/{EVERYTHING.signature}"


@pytest.mark.cuda
def test_a_search_never_waits_and_can_be_captured(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(3000)])
    index = DeviceIndex(Entries(store), "cuda", clustered=True)
    for rows, probes in ((5, 6), (200, 12)):
        index.clusters.settings = SearchSettings(probes, 64)
        asked = torch.from_numpy(clustered(rows, seed=9)).cuda()
        with without_waiting():
            index.search(asked, 8)
        replay, found = captured(lambda asked=asked: index.search(asked, 8))  # type: ignore[misc]
        asked.copy_(torch.from_numpy(clustered(rows, seed=10)))
        replay()
        for mine, expected in zip(found, index.search(asked, 8), strict=True):
            torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.parametrize(("make", "count"), [(lambda keys: keys, 70), (Clusters, 700)], ids=["exact", "clusters"])
def test_queries_that_are_no_numbers_do_not_disturb_others(
    device: str, rows: int, make: Callable[[ResidentKeys], ResidentKeys | Clusters], count: int
) -> None:
    """On a GPU, looking for a key where none is ends the process."""
    index = make(resident(torch.from_numpy(clustered(count)).half(), device))
    queries = torch.from_numpy(clustered(rows, seed=3)).to(device)
    expected = on_cpu(index.search(queries, 4))
    queries[1], queries[2] = float("nan"), float("inf")
    found = on_cpu(index.search(queries, 4))
    others = [0, *range(3, rows)]
    assert torch.equal(found[1][others], expected[1][others])
    assert not ((found[0] < float("inf")) & (found[1] < 0)).any()
    assert found[1].max() < count
