"""Search over a store that changes: with an index, without one, with one that does not fit, without FAISS."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.datastore import changing
from knnmt.datastore.joining import joined_with
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, MissingDependencyError
from knnmt.index import store_index
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.kinds import SearchSettings
from knnmt.index.saved import MISSING, build_index, update_index
from knnmt.index.store_index import IndexPart, StoreIndex, extended
from support.datastore_pairs import some_pairs
from support.index_stores import append_keys, assert_exact, clustered, faiss_or_skip, write_store

QUERIES = torch.from_numpy(clustered(20, seed=9))
EVERYTHING = SearchSettings(probes=4096, candidates=0)


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return write_store(tmp_path / "store", [clustered(1500), clustered(500, seed=1)])


@pytest.fixture
def no_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)


def indexed(store: Datastore) -> StoreIndex:
    faiss_or_skip()
    build_index(store, "ivf-flat", EVERYTHING)
    return StoreIndex(store)


def even(pair: object) -> bool:
    return int(str(getattr(pair, "origin", "")).partition("#")[2]) % 2 == 0


@pytest.mark.parametrize("with_index", [True, False])
def test_a_store_that_lives(store: Datastore, with_index: bool) -> None:
    """Added, removed, compacted: after each, exactly what is there is found, and k of it."""
    index = indexed(store) if with_index else StoreIndex(store)
    assert not index.refresh()
    other = Datastore.open(store.path)
    changes: list[Callable[[], object]] = [
        lambda: append_keys(store.path, QUERIES.numpy() + 0.01),
        lambda: other.remove(even),
        lambda: append_keys(store.path, clustered(300, seed=5)),
        lambda: other.remove(lambda pair: pair.origin.startswith("part2")),
        lambda: other.compact(),
        lambda: append_keys(store.path, clustered(10, seed=6)),
    ]
    for change in changes:
        before = index.search(QUERIES, 8)
        change()
        assert all(torch.equal(*pair) for pair in zip(index.search(QUERIES, 8), before, strict=True))  # a snapshot
        assert index.refresh()
        other.refresh()
        assert index.entries.generation == other.manifest.generation
        assert_exact(index.search(QUERIES, 8), other, QUERIES, 8)
    assert_exact(index.search(QUERIES, 2000), other, QUERIES, 2000)


def test_an_addition_is_found_at_once(store: Datastore) -> None:
    index = indexed(store)
    append_keys(store.path, QUERIES.numpy())
    index.refresh()
    assert index.search(QUERIES, 1)[1][:, 0].tolist() == list(range(2000, 2020))
    assert index.description == "ivf-flat, 4096 probes, 2,000 entries; exact for 20 newer ones"


def test_refreshing_reads_nothing_again_that_stays(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexed(store)
    append_keys(store.path, clustered(100, seed=2))
    index.refresh()
    index.search(QUERIES, 8)
    loaded: list[tuple[int, int]] = []
    load = ExactIndex._load

    def noted(part: ExactIndex) -> object:
        loaded.append((part.first, part.last))
        return load(part)

    monkeypatch.setattr(store_index, "open_saved", lambda *_: pytest.fail("index read again"))
    monkeypatch.setattr(ExactIndex, "_load", noted)
    for seed in range(4):
        append_keys(store.path, clustered(20, seed=seed))
        assert index.refresh()
        assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)
    assert loaded == [(2100, 2120), (2100, 2140), (2000, 2160), (2160, 2180)]
    store.remove(even)
    assert index.refresh()
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)
    assert len(loaded) == 4


def test_segments_that_were_joined_are_not_loaded_again(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[list[tuple[int, int]]] = []
    load = ExactIndex._load

    def noted(part: ExactIndex) -> object:
        loaded[-1].append((part.first, part.last))
        return load(part)

    monkeypatch.setattr(ExactIndex, "_load", noted)
    for joins in (lambda *_: 0, joined_with):
        monkeypatch.setattr(changing, "joined_with", joins)
        store = Datastore.build(tmp_path / str(len(loaded)), some_pairs(60), tiny)
        index = StoreIndex(Datastore.open(store.path))
        loaded.append([])
        index.search(QUERIES, 8)
        for number in range(12):
            store.add(some_pairs(1, "live", 100 + number), tiny)
            if number == 8:
                store.remove(lambda pair: pair.origin.endswith("3"))
            assert index.refresh()
            assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)
    assert len(store.segments) < 5
    assert loaded[0] == loaded[1]


def test_settings_that_change_are_taken_up_without_reading_the_index_again(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed(store)
    monkeypatch.setattr(store_index, "open_saved", lambda *_: pytest.fail("index read again"))
    build_index(store, "ivf-flat", SearchSettings(probes=2, candidates=50))
    assert index.refresh()
    assert index.description == "ivf-flat, 2 probes, 50 re-ranked, 2,000 entries"


def test_an_index_that_is_built_or_brought_up_to_date_is_taken_up(store: Datastore) -> None:
    faiss_or_skip()
    index = StoreIndex(store)
    assert index.description == "exact, 2,000 entries"
    build_index(store, "ivf-flat", EVERYTHING)
    assert index.refresh()
    assert index.description == "ivf-flat, 4096 probes, 2,000 entries"
    append_keys(store.path, clustered(100, seed=2))
    update_index(Datastore.open(store.path))
    assert index.refresh()
    assert index.description == "ivf-flat, 4096 probes, 2,100 entries"
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)
    assert not index.refresh()


def test_a_compacted_store_makes_the_index_stale_until_it_is_built_again(store: Datastore) -> None:
    index = indexed(store)
    store.remove(even)
    store.compact()
    assert index.refresh()
    assert index.description == "exact, 996 entries"
    assert index.hint is None  # where every key is looked at in no time, nobody need know
    noticed = StoreIndex(store, noticeable_entries=995)
    hint = str(noticed.hint)
    assert "earlier state of the store" in hint
    assert f"`knnmt index {store.path}` builds it again" in hint
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)
    update_index(store)
    assert index.refresh()
    assert index.description == "ivf-flat, 4096 probes, 996 entries"
    assert index.hint is None
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)


def test_exact_search_passes_over_an_index(store: Datastore) -> None:
    indexed(store)
    index = StoreIndex(store, exact=True)
    assert index.description == "exact, 2,000 entries"
    assert index.hint is None


def test_without_faiss_search_is_exact_and_says_why(store: Datastore, request: pytest.FixtureRequest) -> None:
    indexed(store)
    request.getfixturevalue("no_faiss")
    index = StoreIndex(store)
    assert index.description == "exact, 2,000 entries"
    assert "pip install 'knnmt[faiss]'" in str(index.hint)
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)
    append_keys(store.path, clustered(100, seed=2))
    assert index.refresh()
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)


@pytest.mark.usefixtures("no_faiss")
def test_without_faiss_an_index_cannot_be_built(store: Datastore) -> None:
    with pytest.raises(MissingDependencyError, match="faiss-cpu"):
        build_index(store, "rabitq")
    build_index(store, "exact")
    assert StoreIndex(store).hint is None


def test_hints_where_exact_search_is_felt(store: Datastore) -> None:
    index = StoreIndex(store, noticeable_entries=1000)
    assert str(index.hint) == f"searched exactly; `knnmt index {store.path}` makes it faster"
    build_index(store, "exact")
    index.refresh()
    assert index.hint is None  # somebody chose that
    indexed(store)
    index.refresh()
    assert index.hint is None
    append_keys(store.path, clustered(1001, seed=3))
    index.refresh()
    assert (
        index.hint
        == f"entries newer than the index are searched exactly; `knnmt index {store.path}` adds them to the index"
    )


def test_a_missing_faiss_is_said_of_stores_where_it_is_felt(
    store: Datastore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = (
        "every key is compared in every step, because FAISS is not installed: `pip install 'knnmt[faiss]'` and then "
    )
    faiss_or_skip()
    assert not StoreIndex(store).snapshot.lacks_faiss
    request.getfixturevalue("no_faiss")
    assert StoreIndex(store).hint is None  # so few are searched in no time
    assert str(StoreIndex(store, noticeable_entries=1000).hint).startswith(f"{without}`knnmt index {store.path}` make")
    build_index(store, "exact")  # which is all that there is to choose
    index = StoreIndex(store, noticeable_entries=1000)
    assert str(index.hint).startswith(without)
    assert StoreIndex(store, exact=True, noticeable_entries=1000).hint is None
    build_index(store, "exact", fidelity={MISSING: "faiss-cpu"})
    monkeypatch.undo()  # it is installed
    assert (
        str(StoreIndex(store, noticeable_entries=1000).hint)
        == f"searched exactly; `knnmt index {store.path}` makes it faster"
    )


def test_a_damaged_index_is_refused(store: Datastore) -> None:
    index = indexed(store)
    assert index.saved is not None
    assert index.saved.stored is not None
    (store.path / "indexes" / index.saved.stored.file).unlink()
    with pytest.raises(DatastoreDamagedError, match="builds it again"):
        StoreIndex(store)
    assert not index.refresh()  # it has what it needs


def test_an_index_that_cannot_be_taken_up_leaves_the_one_before(store: Datastore) -> None:
    index = indexed(store)
    before = index.search(QUERIES, 8)
    stored = build_index(store, "rabitq").stored
    assert stored is not None
    (store.path / "indexes" / stored.file).write_bytes(b"")
    append_keys(store.path, QUERIES.numpy())
    with pytest.raises(DatastoreDamagedError, match=r"expected [\d,]+ bytes, found 0"):
        index.refresh()
    assert index.description == "ivf-flat, 4096 probes, 2,000 entries"
    assert all(torch.equal(*pair) for pair in zip(index.search(QUERIES, 8), before, strict=True))


def test_a_store_without_entries(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [np.empty((0, 32), np.float32)])
    distances_sq, ids = StoreIndex(store).search(QUERIES, 3)
    assert ids.tolist() == [[-1] * 3] * 20
    assert distances_sq.isinf().all()


def test_parts_stay_few_and_cover_everything(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [clustered(64)])
    parts: list[IndexPart] = []
    most = 0
    for seed in range(48):
        append_keys(store.path, clustered(8, seed=seed))
        store.refresh()
        entries = Entries(store)
        parts = extended(parts, entries, 16, torch.device("cpu"))
        assert [part.first for part in parts] == [16, *(part.last for part in parts[:-1])]
        assert parts[-1].last == entries.entries
        most = max(most, len(parts))
    assert most <= 6  # log2 of the additions


def test_a_damaged_record_leaves_the_store_usable(store: Datastore) -> None:
    build_index(store, "exact")
    (store.path / "indexes" / "index.json").write_text("{", encoding="utf-8")
    index = StoreIndex(store)
    assert "cannot be used" in (index.hint or "")
    assert (index.search(torch.zeros(1, index.entries.dim), 3)[1] >= 0).all()
