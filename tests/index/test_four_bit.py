"""The compiled search beside a search that looks at everything, in every build that runs here."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt import native
from knnmt.datastore.store import Datastore
from knnmt.index import four_bit
from knnmt.index.entries import Entries
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.four_bit import FourBitSearch
from knnmt.index.kinds import KINDS, SearchSettings
from support.index_stores import (
    all_keys,
    append_keys,
    assert_exact,
    clustered,
    faiss_or_skip,
    live_ids,
    recall,
    write_store,
)
from support.native_builds import vector_builds_that_run

faiss = faiss_or_skip()
if native.library() is None:
    pytest.skip("the compiled search was not built, or is switched off", allow_module_level=True)
BUILDS = vector_builds_that_run()
ALL_LISTS = 1 << 12
QUERIES = torch.from_numpy(clustered(40, seed=9))


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    found = native.load(request.param)
    assert found is not None
    monkeypatch.setattr(four_bit, "library", lambda: found)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return write_store(tmp_path_factory.mktemp("four-bit") / "store", [clustered(900), clustered(607, seed=1)])


@pytest.fixture(scope="module")
def trained(store: Datastore) -> FaissIndex:
    return FaissIndex.train_and_add(Entries(store), KINDS["pq4"])


@pytest.fixture
def index(trained: FaissIndex) -> FaissIndex:
    trained._compiled = None  # it may be of another build
    return trained


def looking(index: FaissIndex, probes: int = ALL_LISTS, candidates: int = 32, reach: float = 0.0) -> FaissIndex:
    index.settings = SearchSettings(probes, candidates, reach)
    return index


def test_with_every_list_and_candidate_it_is_exact(build: ctypes.CDLL, index: FaissIndex, store: Datastore) -> None:
    assert_exact(looking(index, candidates=2000).search(QUERIES, 8), store, QUERIES, 8)


def test_any_dimension_and_float32_keys_will_do(build: ctypes.CDLL, tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [clustered(400, 50), clustered(307, 50, 1)], "float32")
    index = looking(FaissIndex.train_and_add(Entries(store), KINDS["pq4"]), candidates=2000)
    queries = torch.from_numpy(clustered(30, 50, 9))  # 50 dimensions fill no whole number of vectors
    assert_exact(index.search(queries, 8), store, queries, 8)


def test_candidates_are_the_nearest_by_their_codes(build: ctypes.CDLL, index: FaissIndex, store: Datastore) -> None:
    _, ids = looking(index, candidates=40).search(QUERIES, 20)
    keys, codes = all_keys(store), index._lists.pq
    decoded = codes.decode(codes.compute_codes(index._reduced(torch.from_numpy(keys)).numpy()))
    rough = ((index._reduced(QUERIES).numpy()[:, None] - decoded) ** 2).sum(-1)
    true = ((QUERIES.numpy()[:, None] - keys) ** 2).sum(-1)
    for row, found in enumerate(ids.tolist()):
        proposed = np.argsort(rough[row])[:40]
        expected = proposed[np.argsort(true[row][proposed])[:20]]
        assert len(set(found) & set(expected.tolist())) >= 19  # tables are rounded, so that the last may differ


def test_one_query_is_no_work_for_other_threads(build: ctypes.CDLL, index: FaissIndex) -> None:
    """Parts without queries end at once, and beside them, a thread with a query would seem to have lost its core."""
    before, wanted = torch.get_num_threads(), compiled_threads() + 3  # more than any team has had
    torch.set_num_threads(wanted)
    try:
        found = [(looking(index).search(QUERIES[:rows], 4)[1], compiled_threads()) for rows in (1, 2)]
    finally:
        torch.set_num_threads(before)
    assert found[1][1] <= found[0][1] + 1 == wanted - 2
    assert torch.equal(found[0][0], found[1][0][:1])


def compiled_threads() -> int:
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()].count("knnmt")


@pytest.mark.parametrize(("probes", "reach"), [(1, 0.0), (3, 0.0), (ALL_LISTS, 1.5), (4, 1.2)])
def test_lists_are_the_nearest_within_reach(
    build: ctypes.CDLL, index: FaissIndex, store: Datastore, probes: int, reach: float
) -> None:
    keys, centres = all_keys(store), index._centres.numpy().astype(np.float64)
    home = ((index._reduced(torch.from_numpy(keys)).numpy()[:, None] - centres) ** 2).sum(-1).argmin(1)
    _, ids = looking(index, probes, 2000, reach).search(QUERIES, 4)
    for row, query in enumerate(index._reduced(QUERIES).numpy()):
        far = ((query - centres) ** 2).sum(-1)
        allowed = np.argsort(far)[:probes]
        allowed = allowed[far[allowed] <= (reach or np.inf) * far.min()]
        mine = np.flatnonzero(np.isin(home, allowed))
        nearest = mine[np.argsort(((QUERIES[row].numpy() - keys[mine]) ** 2).sum(-1))[:4]]
        assert ids[row].tolist() == nearest.tolist()


def test_removed_entries_leave_their_room_to_others_and_new_ones_are_found(build: ctypes.CDLL, tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = write_store(path, [clustered(800)])
    index = looking(FaissIndex.train_and_add(Entries(store), KINDS["pq4"]))
    before = index._compiled_search()
    store.remove(lambda pair: int(pair.origin.partition("#")[2]) % 2 == 0)
    index.entries = Entries(store)
    queries = torch.from_numpy(all_keys(store)[:400:16])  # of entries that are gone
    found = index.search(queries, 8)
    assert np.isin(found[1].numpy(), live_ids(store)).all()
    assert recall(found, store, queries, 8) > 0.97
    after = index._compiled_search()
    assert before is not None
    assert after is not None
    assert after.of_lists is before.of_lists  # which are not looked for again

    append_keys(path, clustered(300, seed=5))
    store = Datastore.open(path)
    index.add(Entries(store))
    distances_sq, ids = index.search(torch.from_numpy(all_keys(store)[800:850]), 1)
    assert ids[:, 0].tolist() == list(range(800, 850))
    assert distances_sq.max() == 0

    store.remove(lambda pair: pair.origin != "part0#1")
    index.entries = Entries(store)
    assert_exact(index.search(queries, 12), store, queries, 12)  # which has eight entries left


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e38, 1e19])
def test_a_query_that_overflowed_finds_nothing_and_harms_no_other(
    build: ctypes.CDLL, index: FaissIndex, number: float
) -> None:
    queries = QUERIES[:3].clone()
    queries[0], queries[1, ::2] = number, number
    distances_sq, ids = looking(index, 8, reach=1.6).search(queries, 8)
    assert (ids[:2] == -1).all()
    assert distances_sq[:2].isinf().all()
    assert ids[2].tolist() == index.search(QUERIES[2:3], 8)[1][0].tolist()


def test_lists_are_found_again_after_an_addition_that_was_interrupted(build: ctypes.CDLL, tmp_path: Path) -> None:
    path = tmp_path / "s"
    index = looking(FaissIndex.train_and_add(Entries(write_store(path, [clustered(300)])), KINDS["pq4"]))
    index.search(QUERIES, 8)
    append_keys(path, clustered(3000, seed=5))  # so many that the lists move
    store = Datastore.open(path)

    def interrupt(done: int, _entries: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.add(Entries(store), interrupt)
    assert_exact(looking(index, candidates=4000).search(QUERIES, 8), store, QUERIES, 8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 12),
    threads=st.integers(1, 3),
    scale=st.sampled_from([0, 1e-6, 1, 1e6]),
)
def test_rows_depend_neither_on_each_other_nor_on_threads(
    index: FaissIndex, seed: int, rows: int, threads: int, scale: float
) -> None:
    queries = torch.from_numpy(clustered(rows, seed=seed)) * scale
    search = looking(index, 3, reach=1.6)._compiled_search()
    assert search is not None
    reduced = torch.cat([index._reduced(query[None]) for query in queries])  # matrix products depend on the rows
    products = index._centres_sq - 2 * (reduced[:, None] * index._centres).sum(-1)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        together = search.search(queries, reduced, products, 8, 32, 3, 1.6)
        rows_alone = [(queries[[row]], reduced[[row]], products[[row]]) for row in range(rows)]
        alone = [search.search(*own, 8, 32, 3, 1.6) for own in rows_alone]
    finally:
        torch.set_num_threads(before)
    for mine, parts in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(mine, torch.cat(parts))


def test_without_it_faiss_finds_the_same(index: FaissIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = looking(index, 8, reach=1.6).search(QUERIES, 8)
    assert index._compiled_search() is not None
    monkeypatch.setattr(four_bit, "library", lambda: None)
    index._compiled = None
    plain = index.search(QUERIES, 8)
    assert index._compiled_search() is None
    assert (compiled[1] == plain[1]).float().mean() > 0.98


def test_entries_that_the_lists_are_not_of_are_not_read(build: ctypes.CDLL, index: FaissIndex, tmp_path: Path) -> None:
    few = Entries(write_store(tmp_path / "few", [clustered(100)]))
    assert FourBitSearch.of(faiss, index._lists, few) is None


@pytest.mark.parametrize("kind", ["rabitq", "ivf-flat"])
def test_other_kinds_go_without(kind: str, store: Datastore) -> None:
    index = FaissIndex.train_and_add(Entries(store), KINDS[kind])
    assert FourBitSearch.of(faiss, index._lists, index.entries) is None
