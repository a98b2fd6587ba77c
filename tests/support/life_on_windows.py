"""The life of a store in a process that pretends to be one of Windows: `live()`, with a checkpoint and a directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support import pretended_windows

pretended_windows.pretend()

from knnmt import output_files  # noqa: E402
from knnmt.adapting import tune as tuning  # noqa: E402
from knnmt.adapting.adapt import adapt  # noqa: E402
from knnmt.compression.pca import reduce  # noqa: E402
from knnmt.datastore import arrays, publication  # noqa: E402
from knnmt.datastore.lock import writer_lock  # noqa: E402
from knnmt.datastore.settings import read_settings, write_settings  # noqa: E402
from knnmt.datastore.store import Datastore  # noqa: E402
from knnmt.engine.loading import load_engine  # noqa: E402
from knnmt.errors import DatastoreLockedError, StorageError  # noqa: E402
from knnmt.index.saved import build_index  # noqa: E402
from knnmt.index.store_index import StoreIndex  # noqa: E402
from knnmt.regular_files import read_regular  # noqa: E402
from support.datastore_pairs import some_pairs  # noqa: E402


def live() -> None:
    arrays._READ_WHOLE_BYTES = 0  # every file is mapped
    output_files._IN_USE_SECONDS = 0.1
    tuning.CACHE_PAIRS = 1  # beams take long
    directory = Path(sys.argv[2])
    store = build_and_change(Path(sys.argv[1]), directory)
    one_writer(store.path)
    index(store)
    transform(store, directory)
    files(directory)
    adapted(Path(sys.argv[1]), directory / "adapted")


def build_and_change(checkpoint: Path, directory: Path) -> Datastore:
    """A reader keeps its files while others change the store; what it holds is removed at the next change."""
    engine = load_engine(checkpoint, device="cpu")
    store = Datastore.build(directory / "store", some_pairs(30), engine)
    assert names_in(directory) == {"store"}, "the lock that lay beside the build is gone"
    reader = Datastore.open(store.path)
    assert any("/segments/" in each for each in pretended_windows.used())
    seen = [array for segment in reader.segments for array in segment.arrays.values()]
    before = [array.copy() for array in seen]
    store.add(some_pairs(5, start=100), engine)
    store.remove(lambda pair: pair.origin == "own.tsv#3")
    store.compact()
    assert named(store) < names_in(store.path / "segments")
    assert all((one == other).all() for one, other in zip(before, seen, strict=True))
    del reader, seen
    store.add(some_pairs(5, start=200), engine)
    assert named(store) == names_in(store.path / "segments")
    return store


def one_writer(place: Path) -> None:
    for moves in (False, True):
        refused = pytest.raises(DatastoreLockedError, match=f"process {os.getpid()} on")
        with writer_lock(place, moves), refused, writer_lock(place, moves):
            pass
        with writer_lock(place, moves):
            pass


def index(store: Datastore) -> None:
    """An index is written again while another is in use; the settings are too."""
    build_index(store, "pq4")
    in_use = StoreIndex(store)
    assert in_use.approximate is not None
    for number in range(2):
        build_index(store, "pq4")
        write_settings(store.path, own={"number": number})
    assert StoreIndex(store).approximate is not None
    assert read_settings(store.path)["own"] == {"number": 1}


def transform(store: Datastore, directory: Path) -> None:
    """A store is made of another one; where that fails, nothing is left."""
    before = names_in(directory)
    made, _ = reduce(store, directory / "small", 4)
    assert made.manifest.dim == 4

    def fail(_keys: int, _entries: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        reduce(store, directory / "never", 4, fail)
    assert names_in(directory) == {*before, "small"}


def files(directory: Path) -> None:
    """Links are refused, scratch files of old writers go, and a file that stays open is not written over."""
    target = directory / "x.json"
    (directory / "link").symlink_to(target)
    with pytest.raises(OSError, match="it is a link"):
        read_regular(directory / "link")
    old, new = (directory / f".x.json.{number}-0123abcd" for number in (1, os.getpid()))
    for each in (old, new):
        each.touch()
    os.utime(old, (0, 0))
    publication.clear_scratch(target)
    assert (old.exists(), new.exists()) == (False, True)
    before = names_in(directory)
    target.write_bytes(b"before")
    with target.open("rb"), pytest.raises(StorageError, match="denied"):
        publication.publish_file(target, lambda file: file.write(b"after"))
    assert target.read_bytes() == b"before"
    publication.publish_file(target, lambda file: file.write(b"after"))
    assert target.read_bytes() == b"after"
    assert names_in(directory) == {*before, "x.json"}


def adapted(checkpoint: Path, directory: Path) -> None:
    """The store in the making is closed before it is put in its place, and nothing stays beside it."""
    directory.mkdir()
    adapt(some_pairs(400), directory / "store", model=checkpoint, device="cpu", sample=1)
    assert names_in(directory) == {"store"}


def names_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()}


def named(store: Datastore) -> set[str]:
    return {stored.file for stored in store.manifest.files()}
