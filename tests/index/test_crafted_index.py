"""Indexes of somebody who means harm, with every checksum right: refused in our words before anything is searched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.datastore.arrays import Array
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError
from knnmt.index.entries import Entries, RowsInPlace
from knnmt.index.exact import ExactIndex
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.four_bit import FourBitSearch
from knnmt.index.kinds import KINDS
from knnmt.index.saved import build_index, check_saved, open_saved, read_saved, update_index
from knnmt.index.store_index import StoreIndex
from support.crafted import alter_record, stored
from support.index_stores import append_keys, clustered, faiss_or_skip, write_store

faiss = faiss_or_skip()
QUERIES = torch.from_numpy(clustered(20, seed=9))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("crafted") / "s", [clustered(1500), clustered(500, seed=1)]).path


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return write_store(tmp_path / "store", [clustered(1500), clustered(500, seed=1)])


@pytest.fixture(scope="module")
def made_and_indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = write_store(tmp_path_factory.mktemp("indexed") / "s", [clustered(1500), clustered(500, seed=1)])
    build_index(store, "pq4")
    return store.path


@pytest.fixture
def indexed(made_and_indexed: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(shutil.copytree(made_and_indexed, tmp_path / "indexed"))


def record(store: Datastore) -> Path:
    return store.path / "indexes" / "index.json"


def put(store: Datastore, content: bytes) -> None:
    """Another file in the place of a store's index, and a record that says so."""
    saved = read_saved(store)
    assert saved is not None
    assert saved.stored is not None
    path = store.path / "indexes" / saved.stored.file
    path.write_bytes(content)
    alter_record(record(store), lambda content: content.update(stored=stored(path)))


def written(index: Any) -> bytes:
    return bytes(faiss.serialize_index(index))


def refused(store: Datastore, message: str) -> None:
    for use in (lambda: StoreIndex(store).search(QUERIES, 8), lambda: check_saved(store)):
        with pytest.raises(DatastoreDamagedError, match=message):
            use()


# Ids ------------------------------------------------------------------------------------------------------------------


def with_ids(index: Any, change: Callable[[Array], None]) -> bytes:
    """The index with the ids of its largest list changed in place."""
    lists = faiss.downcast_index(faiss.extract_index_ivf(index))
    sizes = [lists.invlists.list_size(number) for number in range(lists.nlist)]
    number = int(np.argmax(sizes))
    change(faiss.rev_swig_ptr(lists.invlists.get_ids(number), sizes[number]))
    return written(index)


def assign(place: int, value: int) -> Callable[[Array], None]:
    def change(ids: Array) -> None:
        ids[place] = value

    return change


@pytest.mark.parametrize("kind", ["pq4", "rabitq", "ivf-flat", "ivf-sq8", "ivfpq"])
def test_ids_beyond_the_entries_are_refused(made: Path, kind: str) -> None:
    store = Datastore.open(made)
    index = FaissIndex.train_and_add(Entries(store), KINDS[kind])
    build_index(store, "flat")
    for value in (2000, 10**9, 2**62, -1, -(2**63)):
        put(store, with_ids(index._index, assign(0, value)))
        refused(store, "an id that is none of 2,000 entries")


def test_an_id_that_stands_twice_is_refused(store: Datastore) -> None:
    build_index(store, "flat")
    index = FaissIndex.train_and_add(Entries(store), KINDS["pq4"])
    put(store, with_ids(index._index, lambda ids: ids.__setitem__(1, ids[0])))
    refused(store, "every entry once")


# Other indexes --------------------------------------------------------------------------------------------------------


def other(kind: str, dim: int = 32, count: int = 2000) -> Any:
    index = faiss.index_factory(dim, kind)
    keys = clustered(count, dim)
    index.train(keys)
    index.add(keys)
    return index


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: other("Flat", dim=16), "has 16 dimensions, but the store's keys have 32"),
        (lambda: other("Flat", dim=64), "has 64 dimensions"),
        (lambda: other("Flat", count=1999), "has 1,999 entries, but its record says 2,000"),
        (lambda: other("Flat", count=3000), "has 3,000 entries"),
        (lambda: other("LSH"), "which knnmt does not build"),
        (lambda: other("IVF8_HNSW32,Flat"), "of IndexHNSWFlat, which knnmt does not build"),
        (lambda: other("HNSW32"), "IndexHNSWFlat, which knnmt does not build"),
        (lambda: other("L2norm,Flat"), "NormalizationTransform of IndexFlat, which knnmt does not build"),
    ],
)
def test_indexes_of_other_kinds_and_keys_are_refused(store: Datastore, make: Callable[[], Any], message: str) -> None:
    build_index(store, "flat")
    put(store, written(make()))
    refused(store, message)


def test_an_index_of_products_is_refused(store: Datastore) -> None:
    build_index(store, "flat")
    index = faiss.index_factory(32, "Flat", faiss.METRIC_INNER_PRODUCT)
    index.add(clustered(2000))
    put(store, written(index))
    refused(store, "not trained, or for something else")


def test_files_that_are_no_index_are_refused(indexed: Datastore) -> None:
    store, saved = indexed, read_saved(indexed)
    assert saved is not None
    assert saved.stored is not None
    whole = (store.path / "indexes" / saved.stored.file).read_bytes()
    chance = np.random.default_rng(3)
    for content in (b"", b"IwPf", whole[:100], chance.bytes(1000), b"IxPT" + b"\xff" * 200):
        put(store, content)
        refused(store, "cannot read it")
    for _ in range(40):
        altered = bytearray(whole)
        altered[int(chance.integers(600))] = int(chance.integers(256))
        put(store, bytes(altered))
        try:
            found = StoreIndex(store).search(QUERIES, 8)
        except DatastoreDamagedError:
            continue
        assert int(found[1].max()) < 2000


# The record -----------------------------------------------------------------------------------------------------------


def cover_less(content: dict[str, Any]) -> None:
    del content["covers"][1:]


RECORDS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda content: content.update(entries=1500), "not of the entries that its record says"),
    (lambda content: content.update(entries=10**12), "not of the entries that its record says"),
    (lambda content: content.update(entries="2000"), "entries: expected a whole number, found '2000'"),
    (cover_less, "not of the entries that its record says"),
    (lambda content: content.update(covers=[1, 2]), r"covers\[0\]: expected text"),
    (lambda content: content.update(kind="../x"), "there is no index kind"),
    (lambda content: content.update(kind=None), "kind: expected text"),
    (lambda content: content["stored"].update(file="../../manifest.json"), "plain name"),
    (lambda content: content["stored"].update(file="/dev/zero"), "plain name"),
    (lambda content: content["stored"].update(bytes=1), "expected 1 bytes"),
    (lambda content: content["settings"].update(probes=0), "settings: probes must lie between"),
    (lambda content: content["settings"].update(candidates=2**31), "settings: candidates must lie between"),
    (lambda content: content["settings"].update(reach=float("nan")), r"settings\.reach: expected a finite number"),
    (lambda content: content["settings"].pop("probes"), "lacks probes in settings"),
    (lambda content: content["settings"].update(more=1), "unknown field 'more' in settings"),
    (lambda content: content.update(settings=[16, 32, 0]), "settings: expected an object"),
    (lambda content: content.update(fidelity=[]), "fidelity: expected an object"),
    (lambda content: content.pop("generation"), "lacks generation"),
]


@pytest.mark.parametrize(("change", "message"), RECORDS)
def test_records_that_lie_are_refused(
    indexed: Datastore, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    alter_record(record(indexed), change)
    with pytest.raises(DatastoreDamagedError, match=message):
        open_saved(indexed, read_saved(indexed), Entries(indexed))  # type: ignore[arg-type]
    StoreIndex(indexed, exact=True).search(QUERIES, 8)


def test_where_a_record_lies_building_mends_it(indexed: Datastore) -> None:
    alter_record(record(indexed), cover_less)
    build_index(indexed, "pq4")
    StoreIndex(indexed).search(QUERIES, 8)


@pytest.mark.parametrize("depth", [65, 900, 100_000])
def test_a_deeply_nested_record_is_refused(store: Datastore, depth: int) -> None:
    build_index(store, "pq4")
    record(store).write_text('{"format": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(DatastoreDamagedError, match="nested too deeply"):
        read_saved(store)


# Files and directories ------------------------------------------------------------------------------------------------


def test_nothing_that_is_not_ours_is_deleted_beside_an_index(store: Datastore, tmp_path: Path) -> None:
    build_index(store, "rabitq")
    directory = store.path / "indexes"
    for name in ("notes.txt", "mine.faiss", ".hidden", "flat-g1-0123456789ab.faiss", ".written.faiss.77-0a1b2c3d"):
        (directory / name).write_text("x")
    (directory / "written.faiss").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("mine")
    build_index(store, "ivf-flat")
    names = {path.name for path in directory.iterdir()}
    assert {"notes.txt", "mine.faiss", ".hidden"} <= names
    assert len(names) == 6  # with the record, the index and the lock
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_linked_directory_of_indexes_is_refused(store: Datastore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("flat-g1-0123456789ab.faiss", "written.faiss", "index.json"):
        (outside / name).write_text("mine")
    (store.path / "indexes").symlink_to(outside)
    uses: list[Callable[[Datastore], object]] = [lambda store: build_index(store, "flat"), update_index, read_saved]
    for use in uses:
        with pytest.raises(DatastoreDamagedError, match="found a link"):
            use(store)
    assert sorted(path.name for path in outside.iterdir()) == [
        "flat-g1-0123456789ab.faiss",
        "index.json",
        "written.faiss",
    ]


def test_pipes_and_devices_are_not_read(store: Datastore) -> None:
    saved = build_index(store, "flat")
    assert saved.stored is not None
    path = store.path / "indexes" / saved.stored.file
    path.unlink()
    path.symlink_to("/dev/zero")
    refused(store, "it is a link")
    path.unlink()
    os.mkfifo(path)
    refused(store, "not a regular file")
    path.unlink()
    record(store).unlink()
    os.mkfifo(record(store))
    with pytest.raises(DatastoreDamagedError, match="not a regular file"):
        read_saved(store)


# What compiled code is handed -----------------------------------------------------------------------------------------


def test_queries_of_another_width_are_not_searched(store: Datastore) -> None:
    index = FaissIndex.train_and_add(Entries(store), KINDS["pq4"])
    compiled = FourBitSearch.of(faiss, index._lists, index.entries)
    if compiled is None:
        pytest.skip("the compiled search was not built, or is switched off")
    narrow = torch.zeros(3, 16)
    wide, products = torch.zeros(3, 32), torch.zeros(3, index._lists.nlist)
    for queries, reduced, of_lists in ((narrow, wide, products), (wide, narrow, products), (wide, wide, narrow)):
        with pytest.raises(ValueError, match="expected queries of 32 dimensions"):
            compiled.search(queries, reduced, of_lists, 4, 8, 2, 0.0)


def test_rows_of_different_widths_are_not_spanned() -> None:
    with pytest.raises(DatastoreDamagedError, match="different widths"):
        RowsInPlace([np.zeros((3, 4), np.float16), np.zeros((3, 2), np.float16)])
    with pytest.raises(DatastoreDamagedError, match="different widths"):
        RowsInPlace([np.zeros((3, 4), np.float16), np.zeros((3, 4), np.float32)])
    rows = RowsInPlace([np.zeros((3, 4), np.float16)])
    with pytest.raises(ValueError, match="room was given for others"):
        rows.gather(torch.tensor([2]), torch.empty((1, 8), dtype=torch.float16))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_keys_that_are_no_numbers_are_said_or_not_found(store: Datastore, value: float) -> None:
    keys = clustered(100, seed=4)
    keys[7, 3] = value
    append_keys(store.path, keys)
    store.refresh()
    entries = Entries(store)
    for use in (
        lambda: ExactIndex(entries).search(QUERIES, 8),
        lambda: FaissIndex.train_and_add(entries, KINDS["pq4"]),
    ):
        with pytest.raises(DatastoreDamagedError, match="is not a finite number"):
            use()
    found = FaissIndex(faiss.index_factory(32, "Flat"), entries, KINDS["flat"].settings)
    found._index.add(np.concatenate([clustered(1500), clustered(500, seed=1), clustered(100, seed=4)]))
    distances_sq, ids = found.search(torch.from_numpy(clustered(100, seed=4)[7:8]), 8)
    assert 2007 not in ids.tolist()[0]
    assert bool(distances_sq[ids >= 0].isfinite().all())
