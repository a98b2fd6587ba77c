"""Copies whole stores to storage behind a URL, and from there into a directory.

In storage, a store has the same files below a URL. The manifest is written last, so a store with a manifest is
complete. An interrupted copy can be resumed in both directions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from knnmt.config import check
from knnmt.datastore.building import new_store, publish_new_store, stored_as_found
from knnmt.datastore.manifest import (
    INDEX_RECORD,
    INDEXES,
    MANIFEST,
    SEGMENTS,
    Manifest,
    StoredFile,
    manifest_from,
    read_manifest,
)
from knnmt.datastore.publication import publish_file, require_directory, storage_errors
from knnmt.datastore.settings import SETTINGS
from knnmt.datastore.storage import Storage, is_url
from knnmt.errors import DatastoreDamagedError, DatastoreExistsError, NotADatastoreError, StorageError
from knnmt.records import as_record, parse_json
from knnmt.regular_files import read_regular

_MAX_SETTINGS = 1 << 24  # bytes
Progress = Callable[[int, int], None]  # called with the bytes done and all bytes


def copy_store(from_place: str | Path, to_place: str | Path, progress: Progress = lambda _done, _all: None) -> Manifest:
    """Copy a store to a URL, or from one into a new directory, with its settings and its index.

    A gate is not copied.
    """
    one, other = str(from_place), str(to_place)
    check(
        is_url(one) != is_url(other),
        f"expected a directory and a URL such as s3://bucket/place, got {one} and {other}; copy directories with "
        f"any other tool",
    )
    if is_url(one):
        return _fetch(Storage(one), Path(other), progress)
    return _publish(Path(one), Storage(other), progress)


def _publish(store: Path, storage: Storage, progress: Progress) -> Manifest:
    read_manifest(store)  # if this is no store, the error says what it is
    content = read_regular(store / MANIFEST)
    manifest = manifest_from(content, store)
    try:
        there = storage.read(MANIFEST)
    except FileNotFoundError:
        there = b""
    if there and there != content:
        raise DatastoreExistsError(
            f"{storage.url}: another store, or an earlier state of this one, is there. Others may be reading it: "
            f"choose another place, or remove it first."
        )
    index = _index_of(_read_if_there(store / INDEXES / INDEX_RECORD))
    named = [(SEGMENTS, each) for each in manifest.files()] + ([(INDEXES, index)] if index else [])
    total, done = sum(each.bytes for _, each in named), 0
    for directory, stored in named:
        require_directory(store / directory)
        try:
            put = storage.put(store / directory / stored.file, f"{directory}/{stored.file}")
        except OSError as error:
            raise DatastoreDamagedError(f"{store / directory / stored.file}: cannot be read ({error})") from error
        if put != stored:
            raise DatastoreDamagedError(
                f"{store / directory / stored.file}: differs from what the store records. `knnmt verify` lists all "
                f"problems. Nothing was published."
            )
        progress(done := done + stored.bytes, total)
    for name in (SETTINGS, f"{INDEXES}/{INDEX_RECORD}"):
        if (beside := _read_if_there(store / name)) is not None:
            storage.write(name, beside)
    storage.write(MANIFEST, content)  # last: this makes the store complete
    return manifest


def _fetch(storage: Storage, store: Path, progress: Progress) -> Manifest:
    try:
        manifest = manifest_from(storage.read(MANIFEST), storage.url)
    except FileNotFoundError as error:
        raise NotADatastoreError(
            f"{storage.url}: there is no datastore. If one is being copied there, wait until it is done."
        ) from error
    beside = {name: _small(storage, name) for name in (SETTINGS, f"{INDEXES}/{INDEX_RECORD}")}
    index = _index_of(beside[f"{INDEXES}/{INDEX_RECORD}"])
    named = [(SEGMENTS, each) for each in manifest.files()] + ([(INDEXES, index)] if index else [])
    total, done = sum(each.bytes for _, each in named), 0
    with new_store(store, "copying") as making:
        require_directory(making / INDEXES)
        with storage_errors(making):
            (making / INDEXES).mkdir(exist_ok=True)
        _require_room(making, named)
        for directory, stored in named:
            path = making / directory / stored.file
            if not _is_there(path, stored):
                storage.fetch(f"{directory}/{stored.file}", path, stored)
            progress(done := done + stored.bytes, total)
        for name, content in beside.items():
            if content is not None:
                _write(making / name, content)
        publish_new_store(making, store, manifest)
    return manifest


def _require_room(making: Path, named: Sequence[tuple[str, StoredFile]]) -> None:
    """Raise an error if the disk has no room for the files that are still missing: a manifest may claim any size."""
    paths = ((making / directory / stored.file, stored) for directory, stored in named)
    needed = sum(stored.bytes for path, stored in paths if not path.exists())
    free = shutil.disk_usage(making).free
    if needed > free:
        raise StorageError(
            f"{making}: {needed:,} bytes are to be copied, but the disk has {free:,} bytes left. Make room, or choose "
            f"another place."
        )


def _write(path: Path, content: bytes) -> None:
    publish_file(path, lambda file: file.write(content))


def _is_there(path: Path, stored: StoredFile) -> bool:
    try:
        return stored_as_found(path) == replace(stored, file=path.name)
    except OSError:
        return False


def _index_of(record: bytes | None) -> StoredFile | None:
    """The file that the record of an index names; None if the record is unreadable: an index can be made again."""
    try:
        content = parse_json(record or b"null")
        return as_record(StoredFile, content["stored"]) if isinstance(content, dict) and content["stored"] else None
    except (ValueError, LookupError):
        return None


def _small(storage: Storage, name: str) -> bytes | None:
    try:
        return storage.read(name, _MAX_SETTINGS)
    except FileNotFoundError:
        return None


def _read_if_there(path: Path) -> bytes | None:
    try:
        return read_regular(path, _MAX_SETTINGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DatastoreDamagedError(f"{path}: cannot be read ({error})") from error
