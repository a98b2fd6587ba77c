"""Merges stores of one model into one, and splits one store into several. No model runs.

A whole segment is linked, or copied if the file system cannot link. Otherwise only the chosen sentences are written,
so the new store has no data of the others. Small segments are joined. Files are named by their content. An interrupted
call leaves no new store; the same call resumes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from knnmt.config import check
from knnmt.corpus.filters import fingerprint
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import slices
from knnmt.datastore.arrays import Array, Buffer
from knnmt.datastore.building import (
    EntryProgress,
    finish_segment,
    finished_segment,
    new_store,
    publish_new_store,
    require_free,
    stored_as_found,
)
from knnmt.datastore.changing import removed_by
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import MANIFEST, SEGMENTS, Manifest, SegmentRecord, StoredFile
from knnmt.datastore.merging import join, without_removed
from knnmt.datastore.origins import file_of
from knnmt.datastore.publication import clear_files, publish_file, storage_errors, sync_directory
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import ALIKE, Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, InputError, SettingError
from knnmt.progress import ignore

MAX_PARTS = 1000  # at most this many stores from one
_STORE_FILES = re.compile(r"\A.*\.safetensors(\.sha256)?")
_PROJECTION = "projection.safetensors"
_NAME_LENGTH = 80

# The segments that make one segment of a new store. Sentences that are not copied count as removed.
_Piece = tuple[Segment, ...]


# Several into one -----------------------------------------------------------------------------------------------------


def merge_stores(
    stores: Sequence[Datastore], path: Path, drop_duplicates: bool = False, progress: EntryProgress = ignore
) -> Manifest:
    """Merge several stores into one, in their order. Removed sentences are left out.

    drop_duplicates: leave out units whose source and target came before, as `build` does on request
    progress: is called with the numbers of copied sentences and entries
    """
    check(bool(stores), "name the stores to merge")
    for other in stores[1:]:
        _require_alike(stores[0], other)
    segments = [segment for store in stores for segment in store.segments]
    if drop_duplicates:
        removed = removed_by(segments, _came_before(), stores[0].manifest.accelerators)
        segments = [
            replace(segment, removed=removed.get(place, segment.removed)) for place, segment in enumerate(segments)
        ]
    # If some stores lack the data for Fast kNN-MT, the merged store cannot use the data of the others.
    like = replace(stores[0].manifest, for_fast=all(store.manifest.for_fast for store in stores))
    return _make(stores[0], like, segments, path, "merging", progress)


def _require_alike(store: Datastore, other: Datastore) -> None:
    """Raise an error if the keys of two stores cannot be in one store."""
    ours, theirs = store.manifest, other.manifest
    for name in (each for each in ALIKE if each != "for_fast"):
        expected, found = getattr(ours, name), getattr(theirs, name)
        if name == "projection":  # compared by content, whatever its name
            expected, found = (each and each.sha256 for each in (ours.projection, theirs.projection))
        if expected == found:
            continue
        cannot = f"{other.path}: cannot be merged with {store.path}"
        if name in ("model", "tokenizer"):
            raise DatastoreMismatchError(
                f"{cannot}: expected a store of the model {ours.model_name!r}, whose {name} has the fingerprint "
                f"{expected[:12]}; found one of {theirs.model_name!r}, with {found[:12]}. Build it again with that "
                "model."
            )
        if name in ("projection", "transforms", "dim"):
            raise DatastoreMismatchError(
                f"{cannot}: their keys were transformed differently ({_made(ours)}, and {_made(theirs)}). Merge the "
                "stores that they were made from, and reduce or prune the result."
            )
        raise DatastoreMismatchError(
            f"{cannot}: expected {name} {expected!r}, found {found!r}. Build it again with the settings of the "
            f"other store."
        )


def _made(manifest: Manifest) -> str:
    """How the keys were made."""
    projection = f" by projection {manifest.projection.sha256[:12]}" if manifest.projection else ""
    return f"{manifest.dim} dimensions, {' and '.join(manifest.transforms) or 'as they were built'}{projection}"


def _came_before() -> Callable[[SegmentPair], bool]:
    """Returns a function that says whether a pair occurred before; it keeps 8 bytes per pair."""
    seen: set[int] = set()

    def came_before(pair: SegmentPair) -> bool:
        known = fingerprint(pair)
        if known in seen:
            return True
        seen.add(known)
        return False

    return came_before


# One into several -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Division:
    """The part of each sentence. names: of the parts; parts: (sentences,) int32 for each segment, -1 for none"""

    names: tuple[str, ...]
    parts: tuple[Array, ...]

    def segments_of(self, part: int, segments: Sequence[Segment]) -> list[Segment]:
        """The segments that have sentences of a part, with all others removed."""
        found = []
        for segment, parts in zip(segments, self.parts, strict=True):
            others = np.flatnonzero(parts != part).astype(np.int32)
            if len(others) < len(parts):
                found.append(replace(segment, removed=others))
        return found


def split_store(
    store: Datastore,
    directory: Path,
    by_origin: bool = False,
    pairs: int | None = None,
    progress: EntryProgress = ignore,
) -> list[Path]:
    """Split a store into several in a new directory, and return their paths.

    by_origin: one store for each file that units came from
    pairs: otherwise one store for each group of this many units, in their order
    progress: is called with the numbers of copied sentences and entries
    """
    check(by_origin != (pairs is not None), "choose how to split: give either by='origin' or pairs")
    check(pairs is None or pairs >= 1, f"pairs must be at least 1, got {pairs}")
    require_free(directory)
    division = _by_origin(store.segments) if by_origin else _by_pairs(store.segments, pairs or 1)
    if not division.names:
        raise InputError(f"{store.path}: has no sentences left to split")
    digest = hashlib.sha256(f"{store.manifest.content} {by_origin} {pairs}".encode()).hexdigest()[:8]
    work = directory.with_name(f"{directory.name}.splitting-{digest}")
    with storage_errors(work):
        (work / "stores").mkdir(parents=True, exist_ok=True)
    with writer_lock(work):
        require_free(directory)
        sentences = entries = 0
        for number, name in enumerate(division.names):
            path = work / "stores" / name
            if not (path / MANIFEST).exists():
                done = (sentences, entries)
                _make(
                    store,
                    store.manifest,
                    division.segments_of(number, store.segments),
                    path,
                    "making",
                    lambda more, also, done=done: progress(done[0] + more, done[1] + also),  # type: ignore[misc]
                )
            made = Datastore.open(path).manifest
            sentences, entries = sentences + made.sentences, entries + made.entries
            progress(sentences, entries)
        with storage_errors(directory):
            (work / "stores").rename(directory)
            sync_directory(directory.parent)
    shutil.rmtree(work, ignore_errors=True)
    return [directory / name for name in division.names]


def _by_origin(segments: Sequence[Segment]) -> _Division:
    """One part for each file that units came from."""
    numbers: dict[str, int] = {}

    def part_of(segment: Segment, units: Array) -> list[int]:
        files = (file_of(segment.pair(unit).origin) for unit in units.tolist())
        return [numbers.setdefault(file, len(numbers)) for file in files]

    parts = _divided(segments, part_of, lambda: len(numbers))
    return _Division(tuple(_names_of(list(numbers))), parts)


def _by_pairs(segments: Sequence[Segment], pairs: int) -> _Division:
    """One part for each group of `pairs` units."""
    count = 0

    def part_of(_: Segment, units: Array) -> list[int]:
        nonlocal count
        first, count = count, count + len(units)
        return [number // pairs for number in range(first, count)]

    parts = _divided(segments, part_of, lambda: -(-count // pairs))
    return _Division(tuple(f"{number:05d}.store" for number in range(-(-count // pairs))), parts)


def _divided(
    segments: Sequence[Segment], part_of: Callable[[Segment, Array], list[int]], counted: Callable[[], int]
) -> tuple[Array, ...]:
    """The part of every sentence, from the parts of units: lines are in the part of their unit."""
    divided = []
    for segment in segments:
        live = segment.live_sentences()
        unit_of = segment.units_of(live)
        units = live[unit_of == live]
        parts: Array = np.full(segment.record.sentences, -1, np.int32)
        parts[units] = part_of(segment, units)
        parts[live] = parts[unit_of]
        divided.append(parts)
        if counted() > MAX_PARTS:
            raise SettingError(
                f"{segment.path.parent.parent}: this would make more than {MAX_PARTS:,} stores. Split it into stores "
                "of more pairs each (--pairs)"
            )
    return tuple(divided)


def _names_of(files: Sequence[str]) -> list[str]:
    """A different directory name for each file that units came from, also on systems that ignore case."""
    names: list[str] = []
    taken: set[str] = set()
    for file in files:
        stem = re.split(r"[/\\]", file)[-1].rpartition(".")[0] or file
        plain = re.sub(r"[^\w.-]+", "_", stem)[:_NAME_LENGTH].strip("._") or "none"
        name, number = plain, 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name.casefold())
        names.append(f"{name}.store")
    return names


# Shared by both -------------------------------------------------------------------------------------------------------


def _make(
    origin: Datastore, like: Manifest, segments: Sequence[Segment], path: Path, suffix: str, progress: EntryProgress
) -> Manifest:
    """Make a store from segments; origin: the store with the projection; like: its manifest, apart from the files"""
    with new_store(path, suffix) as making:
        directory = making / SEGMENTS
        pieces = list(_pieces(segments))
        if not pieces:
            raise InputError(f"{path}: not made, because there are no sentences for it")
        names = [f"{number:05d}-{_digest(piece)}.safetensors" for number, piece in enumerate(pieces)]
        _clear(directory, names)
        projection = None
        if (found := origin.projection) is not None:
            file = origin.path / SEGMENTS / found.stored.file
            projection = _take_over(directory / _PROJECTION, found.stored, found.content, file)
        records: list[SegmentRecord] = []
        sentences = entries = 0
        for name, piece in zip(names, pieces, strict=True):
            records.append(_write(directory, name, piece))
            sentences, entries = sentences + records[-1].sentences, entries + records[-1].entries
            progress(sentences, entries)
        made = replace(
            like,
            segments=tuple(records),
            projection=projection,
            generation=1,
            next_segment=len(records),
        )
        for record in records:  # linked and copied files must match the manifest
            Segment.open(directory, record, made)
        sync_directory(directory)
        publish_new_store(making, path, made)
    return made


def _clear(directory: Path, names: Sequence[str]) -> None:
    """Remove files that a call with other stores left."""
    kept = {each for name in names for each in (name, f"{name}.sha256")}
    clear_files(directory, _STORE_FILES, kept | {_PROJECTION})


def _pieces(segments: Sequence[Segment]) -> Iterator[_Piece]:
    """Large segments alone, small ones joined."""
    waiting: list[Segment] = []
    entries = 0
    for segment in segments:
        if len(segment.gone_sentences()) == segment.record.sentences:
            continue
        stays = not len(segment.removed) and segment.record.entries >= slices.SLICE_ENTRIES // 2
        unlike = bool(waiting) and segment.arrays.keys() != waiting[0].arrays.keys()
        if waiting and (stays or unlike or entries >= slices.SLICE_ENTRIES):
            yield tuple(waiting)
            waiting, entries = [], 0
        if stays:
            yield (segment,)
        else:
            waiting.append(segment)
            entries += int(np.count_nonzero(segment.live_entries()))
    if waiting:
        yield tuple(waiting)


def _digest(piece: _Piece) -> str:
    """The digest of a segment's content, for its name."""
    digest = hashlib.sha256()
    for segment in piece:
        digest.update(segment.record.stored.sha256.encode())
        digest.update(len(segment.removed).to_bytes(8, "little"))
        digest.update(segment.removed.astype("<i4").tobytes())
    return digest.hexdigest()[:16]


def _write(directory: Path, name: str, piece: _Piece) -> SegmentRecord:
    """Put a segment into the new store, unless an earlier call did so."""
    first = piece[0]
    if len(piece) == 1 and not len(first.removed):
        record, (stored, content) = first.record, first.files[0]
        taken = _take_over(directory / name, stored, content, first.path)
        return SegmentRecord(taken, record.sentences, record.entries)
    gone = [len(segment.removed) for segment in piece]
    sentences = sum(segment.record.sentences for segment in piece) - sum(gone)
    entries = sum(int(np.count_nonzero(segment.live_entries())) for segment in piece)
    found = finished_segment(directory, name, sentences, entries)
    return found or finish_segment(directory, name, join([without_removed(segment) for segment in piece]))


def _take_over(place: Path, stored: StoredFile, content: Buffer, origin: Path) -> StoredFile:
    """Link a file of another store, or copy it. content: its bytes, which stay available if the file is removed"""
    new = StoredFile(place.name, stored.bytes, stored.sha256)
    with suppress(OSError):
        if _is_file(place, stored.bytes) and (place.samefile(origin) or stored_as_found(place) == new):
            return new
    with storage_errors(place):
        place.unlink(missing_ok=True)
    with suppress(OSError, NotImplementedError):  # another file system, or one without links
        os.link(origin, place, follow_symlinks=False)
        if _is_file(place, stored.bytes):
            return new
        place.unlink()
    if hashlib.sha256(content).hexdigest() != stored.sha256:
        raise DatastoreDamagedError(
            f"{origin}: the file was altered after it was written. Restore it, or build the store again; "
            "`knnmt verify` lists all problems."
        )
    publish_file(place, lambda file: file.write(content))
    return new


def _is_file(path: Path, size: int) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_size == size
