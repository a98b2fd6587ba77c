"""A kind of index of one's own: named by who builds, read again by who does not know it, refused if nobody could."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.index.entries import Entries
from knnmt.index.faiss_checks import has_known_parts
from knnmt.index.faiss_index import require_readable
from knnmt.index.kinds import BUILT_IN, KINDS, Kind, SearchSettings, register_kind, typed_kind
from knnmt.index.saved import build_index, open_saved, read_saved, update_index
from knnmt.index.store_index import StoreIndex
from support.index_stores import append_keys, clustered, faiss_or_skip, write_store

faiss = faiss_or_skip()
QUERIES = torch.from_numpy(clustered(20, seed=1))


def made(factory: str, name: str = "mine") -> Kind:
    return Kind(name, "", lambda _entries, _dim: factory, SearchSettings(8, 32), lambda dim: dim)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Others do not see what was registered here."""
    before = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(before)


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return write_store(tmp_path / "store", [clustered(600)])


@pytest.mark.parametrize("factory", ["IVF16,SQ8", "PCA16,IVF8,Flat", "RR16,PCA8,Flat", "IVF8,PQ8x4fs"])
def test_an_index_is_read_by_a_process_that_does_not_know_its_kind(store: Datastore, factory: str) -> None:
    register_kind(made(factory))
    require_readable(KINDS["mine"], Entries(store))
    saved = build_index(store, "mine")
    expected = StoreIndex(store).search(QUERIES, 4)
    del KINDS["mine"]
    index = StoreIndex(Datastore.open(store.path))
    assert index.snapshot.approximate is not None
    assert all(torch.equal(*each) for each in zip(index.search(QUERIES, 4), expected, strict=True))
    assert saved.stored is not None
    assert index.snapshot.signature == f"mine@{saved.stored.sha256[:8]}/8/32"


def test_an_index_of_an_unknown_kind_grows_and_is_not_trained_anew(store: Datastore) -> None:
    register_kind(made("IVF16,SQ8"))
    build_index(store, "mine")
    del KINDS["mine"]
    append_keys(store.path, clustered(700, seed=2))
    updated = update_index(store)
    assert updated is not None
    assert (updated.entries, updated.trained_entries) == (1300, 600)
    known = read_saved(store)
    assert known is not None
    other = write_store(store.path.parent / "other", [clustered(300, seed=3)])
    (store.path / "indexes").rename(other.path / "indexes")
    with pytest.raises(SettingError, match=r"of the kind 'mine', .*--kind package\.module:NAME`"):
        update_index(other)
    with pytest.raises(DatastoreDamagedError, match="not of the entries"):
        open_saved(other, known, Entries(other))


def test_every_kind_there_is_has_parts_that_are_checked() -> None:
    for name in BUILT_IN:
        assert has_known_parts(faiss, faiss.index_factory(32, KINDS[name].factory(5000, 32)))


@pytest.mark.parametrize("factory", ["LSH", "SQ8", "HNSW8", "IVF8_HNSW8,Flat", "IVF16,PQ8x4,RFlat"])
def test_parts_that_nobody_checks_are_refused_before_anything_is_built(store: Datastore, factory: str) -> None:
    kind = made(factory)
    with pytest.raises(SettingError, match=r"not every part of .* can be checked"):
        require_readable(kind, Entries(store))
    register_kind(kind)
    build_index(store, "mine")
    del KINDS["mine"]
    saved = read_saved(store)
    assert saved is not None
    with pytest.raises(DatastoreDamagedError, match="which knnmt does not build"):
        open_saved(store, saved, Entries(store))


def test_a_recipe_that_is_none_is_refused(store: Datastore) -> None:
    with pytest.raises(SettingError, match="'mine': FAISS cannot build 'nonsense'"):
        require_readable(made("nonsense"), Entries(store))


def test_a_kind_is_named_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = "own_kinds_of_a_test"
    monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / f"{module}.py").write_text(
        "from knnmt.index.kinds import Kind, SearchSettings\n"
        "SMALL = Kind('small', '', lambda n, d: 'IVF4,SQ8', SearchSettings(2, 8), lambda d: d)\n"
        "TAKEN = Kind('pq4', '', lambda n, d: 'Flat', SearchSettings(2, 8), lambda d: d)\n"
        "ODD = Kind('../odd', '', lambda n, d: 'Flat', SearchSettings(2, 8), lambda d: d)\n"
        "NOTHING = 3\n",
        encoding="utf-8",
    )
    assert typed_kind("pq4") == "pq4"
    assert typed_kind("exact") == "exact"
    assert typed_kind(f"{module}:SMALL") == "small"
    assert typed_kind("small") == "small"
    for name, problem in (
        ("TAKEN", "'pq4' is a kind of knnmt"),
        ("ODD", "needs a name of small letters"),
        ("NOTHING", "expected a knnmt.index.kinds.Kind, found int"),
        ("GONE", "has no attribute 'GONE'"),
    ):
        with pytest.raises(SettingError, match=problem):
            typed_kind(f"{module}:{name}")
