"""IVFPQ as it is searched on a GPU: the same neighbours and distances as FAISS's own search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.errors import SettingError
from knnmt.index.entries import Entries
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import KINDS, SearchSettings
from knnmt_lab.reproduction.decoded_lists import DecodedLists
from support.index_stores import clustered, faiss_or_skip, write_store

faiss_or_skip()
QUERIES = torch.from_numpy(clustered(40, seed=9))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> FaissIndex:
    store = write_store(tmp_path_factory.mktemp("lists") / "store", [clustered(2500), clustered(1500, seed=1)])
    return FaissIndex.train_and_add(Entries(store), KINDS["ivfpq"])


@pytest.mark.parametrize(("probes", "k"), [(1, 8), (3, 8), (1 << 12, 64), (1, 4000)])
def test_finds_what_faiss_finds(index: FaissIndex, probes: int, k: int) -> None:
    index.settings = SearchSettings(probes, 0)
    distances_sq, ids = index.search(QUERIES, k)
    found_sq, found = DecodedLists(index, "cpu", distances=4000 * 7).search(QUERIES, k)  # seven queries at a time
    assert bool((ids >= 0).any(1).all())
    assert torch.equal(ids >= 0, found >= 0)
    np.testing.assert_allclose(found_sq, distances_sq, rtol=1e-4, atol=1e-3)
    for one, other in zip(ids.tolist(), found.tolist(), strict=True):
        assert len(set(one) ^ set(other)) <= 2  # equal codes are equally far


def test_removed_entries_are_not_found(index: FaissIndex, tmp_path: Path) -> None:
    index.settings = SearchSettings(1 << 12, 0)
    gone = DecodedLists(index, "cpu").search(QUERIES, 1)[1][:, 0]
    live = torch.ones(index.entries.entries, dtype=torch.bool)
    live[gone] = False
    before, index.entries.live = index.entries.live, live
    try:
        assert not set(gone.tolist()) & set(DecodedLists(index, "cpu").search(QUERIES, 4)[1].flatten().tolist())
    finally:
        index.entries.live = before


def test_a_store_too_small_for_lists_is_one(tmp_path: Path) -> None:
    few = FaissIndex.train_and_add(Entries(write_store(tmp_path / "few", [clustered(60)])), KINDS["ivfpq"])
    found_sq, found = DecodedLists(few, "cpu").search(QUERIES, 80)
    distances_sq, ids = few.search(QUERIES, 60)
    assert bool((found[:, 60:] == -1).all())
    np.testing.assert_allclose(found_sq[:, :60], distances_sq, rtol=1e-3, atol=1e-3)
    assert [set(row) for row in found[:, :60].tolist()] == [set(row) for row in ids.tolist()]


def test_only_distances_of_codes_are_found_so(index: FaissIndex) -> None:
    index.settings = SearchSettings(4, 16)
    with pytest.raises(SettingError, match="only FAISS's own distances"):
        DecodedLists(index, "cpu")
