"""Every kind of FAISS index beside a search that looks at everything, and the traps of FAISS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.index.faiss_index import FaissIndex, load_faiss
from knnmt.index.kinds import KINDS, Kind, SearchSettings
from knnmt.index.saved import open_saved, read_saved, save_index
from support.index_stores import all_keys, append_keys, assert_exact, clustered, faiss_or_skip, recall, write_store

faiss = faiss_or_skip()
ALL_LISTS = 1 << 12
QUERIES = torch.from_numpy(clustered(40, seed=9))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return write_store(tmp_path_factory.mktemp("faiss") / "store", [clustered(2500), clustered(1500, seed=1)])


@pytest.fixture(scope="module")
def indexes(store: Datastore) -> dict[str, FaissIndex]:
    return {name: FaissIndex.train_and_add(Entries(store), kind) for name, kind in KINDS.items()}


def searched(index: FaissIndex, probes: int, candidates: int | None = None) -> FaissIndex:
    index.settings = SearchSettings(probes, index.settings.candidates if candidates is None else candidates)
    return index


@pytest.mark.parametrize("kind", ["flat", "ivf-flat"])
def test_kinds_with_whole_keys_are_exact_if_every_list_is_looked_into(
    kind: str, indexes: dict[str, FaissIndex], store: Datastore
) -> None:
    assert_exact(searched(indexes[kind], ALL_LISTS).search(QUERIES, 8), store, QUERIES, 8)


@pytest.mark.parametrize(("kind", "least"), [("ivf-sq8", 0.99), ("rabitq", 0.9), ("pq4", 0.97)])
def test_kinds_that_approximate_find_most(
    kind: str, least: float, indexes: dict[str, FaissIndex], store: Datastore
) -> None:
    index = searched(indexes[kind], ALL_LISTS)
    distances_sq, ids = index.search(QUERIES, 8)
    assert recall((distances_sq, ids), store, QUERIES, 8) >= least
    true_sq = ((QUERIES.numpy()[:, None] - all_keys(store)[ids]) ** 2).sum(-1)
    np.testing.assert_allclose(distances_sq, true_sq, rtol=1e-4)  # approximate in what is found, not in how near it is


def test_the_papers_index_gives_its_own_distances(indexes: dict[str, FaissIndex], store: Datastore) -> None:
    index = searched(indexes["ivfpq"], ALL_LISTS)
    distances_sq, ids = index.search(QUERIES, 8)
    assert recall((distances_sq, ids), store, QUERIES, 8) >= 0.7
    true_sq = ((QUERIES.numpy()[:, None] - all_keys(store)[ids]) ** 2).sum(-1)
    assert 0 < np.abs(distances_sq.numpy() / true_sq - 1).mean() < 0.2


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_distance_is_below_zero_where_queries_lie_on_keys(kind: str, tmp_path: Path) -> None:
    """Products of far keys that lie together give by rounding squared distances below 0, whose roots are no numbers."""
    far = np.repeat(20 + 5 * clustered(60), 20, axis=0)
    index = FaissIndex.train_and_add(Entries(write_store(tmp_path / "s", [far])), KINDS[kind])
    distances_sq, ids = searched(index, ALL_LISTS).search(torch.from_numpy(far[::20]), 8)
    assert distances_sq.min() >= 0
    assert (ids >= 0).all()


def test_the_papers_index_holds_what_faiss_itself_would_add(store: Datastore) -> None:
    index = FaissIndex.train_and_add(Entries(store), KINDS["ivfpq"])
    ours = index.search(QUERIES, 8)
    index._index.reset()
    index._index.add(all_keys(store).astype(np.float32))
    theirs = index.search(QUERIES, 8)
    assert torch.equal(ours[1], theirs[1])
    torch.testing.assert_close(ours[0], theirs[0])


@pytest.mark.parametrize("kind", ["ivfpq", "pq4"])
def test_a_trained_index_takes_other_entries(kind: str, store: Datastore, tmp_path: Path) -> None:
    index = FaissIndex.train_and_add(Entries(store), KINDS[kind])
    fewer = write_store(tmp_path / "fewer", [all_keys(store)[::3]])
    index.fill(Entries(fewer))
    assert index.covered == fewer.entries < store.entries
    found = searched(index, ALL_LISTS).search(QUERIES, 8)
    assert recall(found, fewer, QUERIES, 8) >= (0.7 if kind == "ivfpq" else 0.97)


@pytest.mark.parametrize("kind", ["ivf-flat", "pq4", "rabitq", "ivfpq", "ivf-sq8"])
def test_probes_reach_the_lists_behind_a_transform(kind: str, indexes: dict[str, FaissIndex], store: Datastore) -> None:
    index, found = indexes[kind], []
    for probes in (1, 4, ALL_LISTS):
        searched(index, probes)
        before = faiss.cvar.indexIVF_stats.nlist
        found.append(recall(index.search(QUERIES, 32), store, QUERIES, 32))
        if kind not in ("rabitq", "pq4"):  # those do not count
            assert faiss.cvar.indexIVF_stats.nlist - before == len(QUERIES) * min(probes, index._lists.nlist)
    assert found[0] < found[1] <= found[2]


@pytest.mark.parametrize("kind", ["ivf-flat", "pq4"])
def test_settings_of_one_search_leave_another_of_the_same_index_alone(
    kind: str, indexes: dict[str, FaissIndex]
) -> None:
    index = searched(indexes[kind], 4, candidates=64)
    before = index.search(QUERIES, 8)
    other = index.at(index.entries, SearchSettings(probes=1, candidates=0))
    other.search(QUERIES, 8)
    assert all(torch.equal(*each) for each in zip(index.search(QUERIES, 8), before, strict=True))
    assert index.settings.probes == 4


# Recipes of one's own -------------------------------------------------------------------------------------------------

RECIPES = [
    "OPQ2_16,IVF16,PQ16x4",
    "PCA16,IVF16,PQ8x8np",
    "PCAR16,IVF16,Flat",
    "RR16,IVF16,SQ8",
    "L2norm,IVF16,Flat",
    "PCA24,OPQ2_16,IVF16,PQ16x4fs",
    "PCA16,Flat",
    "PCA16,SQ8",
    "PCA16,IVF16,PQ8x8np,RFlat",
]


def made_kind(factory: str, candidates: int = 200) -> Kind:
    return Kind("own", "", lambda _entries, _dim: factory, SearchSettings(16, candidates), lambda dim: dim)


@pytest.mark.parametrize(
    "factory", [*RECIPES[:3], *(pytest.param(each, marks=pytest.mark.soak) for each in RECIPES[3:])]
)
def test_recipes_with_transforms_are_built_saved_and_searched(
    factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [clustered(400)])  # OPQ takes its time
    monkeypatch.setitem(KINDS, "own", made_kind(factory))
    index = FaissIndex.train_and_add(Entries(store), made_kind(factory))
    assert index.covered == store.entries
    assert recall(index.search(QUERIES, 8), store, QUERIES, 8) >= 0.9
    saved = save_index(store, index, "own", {})
    append_keys(store.path, QUERIES.numpy())
    store.refresh()
    again = open_saved(store, saved, Entries(store))
    assert all(torch.equal(*each) for each in zip(again.search(QUERIES, 8), index.search(QUERIES, 8), strict=True))
    again.add(Entries(store))
    assert again.covered == store.entries
    assert (again.search(QUERIES, 1)[1][:, 0] >= 400).float().mean() > 0.9


def test_codes_behind_a_transform_hold_what_faiss_itself_would_add(store: Datastore) -> None:
    index = FaissIndex.train_and_add(Entries(store), made_kind("RR16,PCA16,IVF16,PQ8x8np", candidates=0))
    ours = index.search(QUERIES, 8)
    index._index.reset()
    index._index.add(all_keys(store))
    assert recall(ours, store, QUERIES, 8) >= 0.4
    torch.testing.assert_close(index.search(QUERIES, 8), ours)


def test_an_index_that_cannot_be_searched_is_not_saved(store: Datastore) -> None:
    class Unsearchable(FaissIndex):
        def _propose(self, queries: torch.Tensor, count: int, reach: float) -> SearchResult:
            raise RuntimeError("Error: d * 4 == code_size failed")

    sound = FaissIndex.train_and_add(Entries(store), KINDS["flat"])
    before = save_index(store, sound, "flat", {})
    broken = Unsearchable(sound._index, sound.entries, sound.settings)
    with pytest.raises(SettingError, match=r"'flat' cannot be searched .*d \* 4 == code_size"):
        save_index(store, broken, "flat", {})
    assert read_saved(store) == before
    assert {path.suffix for path in (store.path / "indexes").iterdir()} == {"", ".json", ".faiss"}


def test_more_candidates_find_more(indexes: dict[str, FaissIndex], store: Datastore) -> None:
    found = []
    for candidates in (8, 32, 256):
        index = searched(indexes["rabitq"], ALL_LISTS, candidates)
        found.append(recall(index.search(QUERIES, 8), store, QUERIES, 8))
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_where_lists_are_short_nothing_is_said_to_be_nothing(
    kind: str, indexes: dict[str, FaissIndex], store: Datastore
) -> None:
    distances_sq, ids = searched(indexes[kind], 1).search(QUERIES, 3500)
    short = ids < 0
    assert torch.equal(short, distances_sq.isinf())
    assert short.any() or kind == "flat"
    assert (distances_sq.diff(dim=1) >= 0)[~short[:, 1:]].all()
    distances_sq, ids = searched(indexes[kind], ALL_LISTS).search(QUERIES[:3], 4100)  # more than there are
    assert ids.shape == (3, 4100)
    assert (ids[:, 4000:] == -1).all()
    assert all(len(set(row) - {-1}) == sum(i >= 0 for i in row) for row in ids.tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("entries", "dim"), [(0, 32), (3, 32), (300, 32), (700, 33), (700, 320)])
def test_small_stores_and_odd_dimensions(kind: str, entries: int, dim: int, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(entries, dim)])
    queries = torch.from_numpy(clustered(5, dim, seed=9))
    index = searched(FaissIndex.train_and_add(Entries(store), KINDS[kind]), ALL_LISTS)
    distances_sq, ids = index.search(queries, 4)
    assert (ids >= 0).sum(1).tolist() == [min(4, entries)] * 5
    if entries < 256:
        assert_exact((distances_sq, ids), store, queries, 4)
    else:
        assert recall((distances_sq, ids), store, queries, 4) >= 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_the_same_index(kind: str, indexes: dict[str, FaissIndex], tmp_path: Path) -> None:
    index = searched(indexes[kind], 4)
    index.write(tmp_path / "index")
    again = FaissIndex.read(tmp_path / "index", index.entries, KINDS[kind], index.settings, index.covered)
    for first, second in zip(index.search(QUERIES, 8), again.search(QUERIES, 8), strict=True):
        assert torch.equal(first, second)
    per_entry = (tmp_path / "index").stat().st_size / index.covered
    assert per_entry == pytest.approx(KINDS[kind].bytes_per_entry(32), rel=0.35)


@pytest.mark.parametrize("kind", ["rabitq", "ivf-flat", pytest.param("ivfpq", marks=pytest.mark.soak)])
def test_the_same_seed_gives_the_same_bytes(kind: str, store: Datastore, tmp_path: Path) -> None:
    made = [FaissIndex.train_and_add(Entries(store), KINDS[kind], seed) for seed in (1, 1, 2)]
    digests = [index.write(tmp_path / "index") for index in made]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("kind", KINDS)
def test_entries_added_later_are_found_without_training_again(kind: str, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(2000)])
    index = searched(FaissIndex.train_and_add(Entries(store), KINDS[kind]), ALL_LISTS)
    centres = None if index._lists is None else index._lists.quantizer.reconstruct_n(0, index._lists.nlist)
    append_keys(store.path, QUERIES.numpy())
    store.refresh()
    index.add(Entries(store))
    _, ids = index.search(QUERIES, 2)
    assert (ids[:, 0] == torch.arange(2000, 2040)).float().mean() > 0.95
    if centres is not None:
        assert (centres == index._lists.quantizer.reconstruct_n(0, index._lists.nlist)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.97])
def test_removed_entries_are_never_found_and_leave_no_gap(kind: str, share: float, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(2000)])
    index = searched(FaissIndex.train_and_add(Entries(store), KINDS[kind]), ALL_LISTS)
    chance = np.random.default_rng(0)
    store.remove(lambda pair: bool(chance.random() < share))
    index.entries = Entries(store)
    distances_sq, ids = index.search(QUERIES, 8)
    assert (ids >= 0).all()
    assert index.entries.live is not None
    assert index.entries.live[ids].all()
    if kind in ("flat", "ivf-flat"):
        assert_exact((distances_sq, ids), store, QUERIES, 8)


def test_memory_stays_bounded_and_progress_is_told(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaissIndex, "entries_together", 1000)
    heard: list[tuple[int, int]] = []

    def hear(done: int, of: int) -> None:
        heard.append((done, of))

    FaissIndex.train_and_add(Entries(store), KINDS["ivf-flat"], progress=hear, training=hear)
    training = [(step, 12) for step in (0, 1, *range(1, 11), 12)]  # transforms, ten rounds of k-means, codes
    assert heard == [*training, *((done, 4000) for done in (0, 1000, 2000, 2500, 3500, 4000))]


def test_faiss_uses_as_many_threads_as_torch_and_blas(indexes: dict[str, FaissIndex]) -> None:
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            indexes["flat"].search(QUERIES, 2)
            assert faiss.omp_get_max_threads() == count
    finally:
        torch.set_num_threads(threads)
        load_faiss()
    assert faiss.cvar.distance_compute_blas_threshold <= 20


@pytest.mark.parametrize("kind", ["ivf-flat", "rabitq", "pq4"])
def test_a_wide_reach_leaves_out_no_list(kind: str, indexes: dict[str, FaissIndex]) -> None:
    index = searched(indexes[kind], 4)
    whole = index.search(QUERIES, 8)
    index.settings = replace(index.settings, reach=1e9)
    assert torch.equal(index.search(QUERIES, 8)[1], whole[1])


def test_lists_beyond_the_reach_are_passed_over(indexes: dict[str, FaissIndex], store: Datastore) -> None:
    index = searched(indexes["ivf-flat"], 16)
    index.settings = replace(index.settings, reach=1.5)
    lists = faiss.extract_index_ivf(index._index)
    centres = lists.quantizer.reconstruct_n(0, lists.nlist)
    keys = all_keys(store)
    list_of_key = ((keys[:, None] - centres) ** 2).sum(-1).argmin(1)
    _, found = index.search(QUERIES, 4)
    for query, ids in zip(QUERIES.numpy(), found.tolist(), strict=True):
        distances_sq = ((centres - query) ** 2).sum(1)
        near = {n for n in np.argsort(distances_sq)[:16].tolist() if distances_sq[n] <= 1.5 * distances_sq.min()}
        reachable = [entry for entry in range(len(keys)) if list_of_key[entry] in near]
        if len(reachable) >= 4:
            assert set(ids) == set(sorted(reachable, key=lambda entry: ((keys[entry] - query) ** 2).sum())[:4])
        else:
            assert -1 not in ids  # too little was near: it was searched without that limit


@pytest.mark.parametrize("kind", ["flat", "pq4"])
def test_no_queries_find_nothing(kind: str, indexes: dict[str, FaissIndex]) -> None:
    distances_sq, ids = indexes[kind].search(QUERIES[:0], 8)
    assert distances_sq.shape == ids.shape == (0, 8)


def test_rows_of_a_reach_that_gives_too_few_are_searched_again(indexes: dict[str, FaissIndex]) -> None:
    index = searched(indexes["ivf-flat"], ALL_LISTS)
    index.settings = replace(index.settings, reach=1.0)
    assert (index.search(QUERIES, 1000)[1] >= 0).all()


def test_products_that_take_more_than_the_file(tmp_path: Path) -> None:
    """FAISS counts them as what is read: 256 centres by 8 codes of 16 numbers are 128 KiB, the file is smaller."""
    faiss = faiss_or_skip()
    keys = np.random.default_rng(3).standard_normal((600, 8)).astype(np.float16)
    entries = Entries(write_store(tmp_path / "s", [keys]))
    made = faiss.index_factory(8, "IVF256,PQ8x4")
    made.train(keys.astype(np.float32))
    made.add(keys.astype(np.float32))
    settings = SearchSettings(probes=8, candidates=0)
    index = FaissIndex(made, entries, settings)
    path = tmp_path / "i.faiss"
    index.write(path)
    faiss.set_deserialization_vector_byte_limit(path.stat().st_size)
    with pytest.raises(RuntimeError, match="limit"):
        faiss.read_index(str(path))
    read = FaissIndex.read(path, entries, None, settings, 600, bytes_besides=0)
    assert read._index.use_precomputed_table == made.use_precomputed_table == 1
    queries = torch.randn((20, 8), generator=torch.Generator().manual_seed(3))
    for mine, its in zip(read.search(queries, 8), index.search(queries, 8), strict=True):
        assert torch.equal(mine, its)


def test_a_file_faiss_cannot_read(store: Datastore, tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"no index at all, surely")
    with pytest.raises(DatastoreDamagedError, match=r"cannot read it .*`knnmt index` builds it again"):
        FaissIndex.read(tmp_path / "index", Entries(store), KINDS["flat"], KINDS["flat"].settings, store.entries)


def test_settings_are_as_they_were_given(indexes: dict[str, FaissIndex]) -> None:
    index = indexes["rabitq"]
    index.settings = replace(KINDS["rabitq"].settings, probes=100_000)
    assert index.settings.probes == 100_000
    assert index.search(QUERIES, 1)[1].shape == (40, 1)
