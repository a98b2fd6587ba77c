"""A store opened for reading: a snapshot that shows one generation until `refresh` moves it to the newest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.writing import write_tmx, write_tsv
from knnmt.datastore.arrays import Array
from knnmt.datastore.changing import Selection, chosen_units
from knnmt.datastore.guarded_file import GuardedFile, changed_file, require_unchanged
from knnmt.datastore.manifest import MANIFEST, SEGMENTS, Manifest, SegmentRecord, read_manifest
from knnmt.datastore.projection import StoredProjection
from knnmt.datastore.publication import require_directory
from knnmt.datastore.segment import Segment
from knnmt.datastore.settings import read_settings
from knnmt.datastore.source_hashes import possible_hashes, sentences_with
from knnmt.datastore.verification import problems_of
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, SettingError


@dataclass(frozen=True, slots=True)
class Entry:
    """One (key, value) pair and its place.

    id: valid until the store is compacted
    position: the index of the value in the target's token ids
    """

    id: int
    key: Array
    value: int
    pair: SegmentPair
    target_tokens: Array
    position: int
    removed: bool


class _Generation(NamedTuple):
    """What an open store shows. It is replaced as a whole, so that every thread sees one generation."""

    manifest: Manifest
    segments: list[Segment]
    projection: StoredProjection | None
    first_entry: Array
    guarded: list[GuardedFile]


class ReadableStore:
    """A datastore on disk, open at one generation.

    Threads may read from one object while another refreshes it: each call sees one generation.

    guarded: the process lives if another program cuts a file of the open store (`reading`)
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        segments: list[Segment],
        projection: StoredProjection | None = None,
        guarded: bool = False,
    ) -> None:
        self.path = path
        self._guarded = guarded
        self._read: tuple[int, ...] | None = None  # identifies the file that the manifest was read from, if known
        self._show(manifest, segments, projection)

    def _show(self, manifest: Manifest, segments: list[Segment], projection: StoredProjection | None) -> None:
        first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
        contents = [content for segment in segments for _, content in segment.files]
        contents += [] if projection is None else [projection.content]
        guarded = [content for content in contents if isinstance(content, GuardedFile)]
        self._shown = _Generation(manifest, segments, projection, first_entry, guarded)

    @property
    def manifest(self) -> Manifest:
        """The manifest of this generation."""
        return self._shown.manifest

    @property
    def segments(self) -> list[Segment]:
        """Its segments, in the order of their entries; every change and every refresh makes a new list."""
        return self._shown.segments

    @property
    def projection(self) -> StoredProjection | None:
        """The projection that reduced its keys, if there is one."""
        return self._shown.projection

    def __reduce__(self) -> tuple[Callable[[Path], Self], tuple[Path]]:
        """Pickled as a path, for worker processes: unpickling opens the newest generation there."""
        return type(self).open, (self.path.absolute(),)

    def pinned(self) -> Self:
        """A separate object that stays at this generation, whatever happens to this one."""
        manifest, segments, projection, *_ = self._shown
        return type(self)(self.path, manifest, segments, projection, self._guarded)

    # Opening ----------------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, path: str | Path, engine: Engine[State] | None = None, verify: bool = False, guarded: bool = False
    ) -> Self:
        """Open a store. Raise an error if it was built with another engine; with `verify`, check every byte.

        guarded: the process lives if another program cuts a file of the open store; use what you read after `reading`
        """
        path = Path(path)
        manifest, segments, projection = _open_newest(path, {}, guarded)
        store = cls(path, manifest, segments, projection, guarded)
        if engine is not None:
            store.require_engine(engine)
        problems = list(store.verify()) if verify else []
        if problems:
            raise DatastoreDamagedError(
                f"{path}: {len(problems)} problems, the first: {problems[0]}. Restore the files, or build again."
            )
        return store

    def refresh(self) -> bool:
        """Move to the newest generation; True if there was a newer one. Unchanged segments are not opened again."""
        found = identity(self.path / MANIFEST)  # before it is read: the next call sees later changes
        if found is not None and found == self._read:
            return False
        manifest, segments, projection = _open_newest(self.path, self._known(), self._guarded)
        newer = manifest.generation != self.manifest.generation
        made_for = _made_for(self.manifest, self.projection)
        if _made_for(manifest, projection) != made_for:
            raise DatastoreMismatchError(
                f"{self.path}: a store of another model has replaced the open one. Open it again."
            )
        if manifest != self.manifest:
            self._show(manifest, segments, projection)
        self._read = found
        return newer

    def _known(self) -> dict[SegmentRecord, Segment]:
        return {segment.record: segment for segment in self.segments}

    @property
    def changed(self) -> bool:
        """Whether another program changed a file of the open store, so that it has to be opened again."""
        return changed_file(self._shown.guarded) is not None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise `DatastoreChangedError` at the end of the block if another program changed a file of the open store.

        What was read may then be wrong. The error also takes the place of others. Only guarded stores are checked.
        """
        try:
            yield
        except Exception:
            self.require_unchanged()
            raise
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise `DatastoreChangedError` if another program changed a file of the open store."""
        require_unchanged(self._shown.guarded, self.path)

    def require_engine(self, engine: Engine[State]) -> None:
        """Raise an error if the store was built with another model, or if keys and values do not fit the model."""
        self.manifest.require_engine(self.path, engine)
        *_, dim, vocabulary = _made_for(self.manifest, self.projection)
        if (dim, vocabulary) != (engine.dim, engine.vocabulary_size):
            raise DatastoreDamagedError(
                f"{self.path}: its keys have {dim} dimensions and its values {vocabulary:,} tokens; the model that "
                f"built it has {engine.dim} and {engine.vocabulary_size:,}. Build the store again."
            )

    def verify(self) -> Iterator[str]:
        """The problems of the store, one line each, from checks of every checksum and all relations between arrays."""
        manifest, segments, projection, *_ = self._shown
        yield from problems_of(manifest, segments, projection)
        try:
            read_settings(self.path)
        except DatastoreDamagedError as error:
            yield str(error)

    # Reading ----------------------------------------------------------------------------------------------------------

    @property
    def model_dim(self) -> int:
        """Dimensions of the model's states; the keys have the same unless they were reduced."""
        return _made_for(self.manifest, self.projection)[2]

    @property
    def entries(self) -> int:
        """How many entry ids there are; `manifest.live_entries` counts the entries that were not removed."""
        return self.manifest.entries

    def locate(self, entry: int) -> tuple[Segment, int]:
        """The segment of an entry id, and the entry's place in it."""
        segments, first_entry = self._shown.segments, self._shown.first_entry
        count = int(first_entry[-1])
        if not 0 <= entry < count:
            has = f"entries 0 to {count - 1}" if count else "none"
            raise SettingError(f"entry {entry} does not exist; the store has {has}")
        number = int(np.searchsorted(first_entry, entry, side="right")) - 1
        return segments[number], entry - int(first_entry[number])

    def entry(self, entry: int) -> Entry:
        """One entry with its sentence."""
        segment, place = self.locate(entry)
        sentence, position = int(segment.arrays["sentences"][place]), int(segment.arrays["positions"][place])
        target_tokens = segment.target_tokens(sentence)
        if not 0 <= position < len(target_tokens):
            raise segment.damaged(f"entry {place} stands at position {position} of {len(target_tokens)}")
        return Entry(
            id=entry,
            key=segment.arrays["keys"][place],
            value=int(segment.arrays["values"][place]),
            pair=segment.pair(sentence),
            target_tokens=target_tokens,
            position=position,
            removed=bool(np.isin(sentence, segment.removed)),
        )

    def pairs(self) -> Iterator[SegmentPair]:
        """Every sentence that was not removed, in order."""
        for segment in self.segments:
            for _, pair in segment.pairs():
                yield pair

    def pairs_among(self, sources: Iterable[str]) -> Iterator[SegmentPair]:
        """The live sentences with one of these sources, and perhaps with a form of one; no others are read."""
        hashes = possible_hashes(sources)
        for segment in self.segments:
            for sentence in sentences_with(segment, hashes).tolist():
                yield segment.pair(sentence)

    def units(self) -> Iterator[SegmentPair]:
        """Every unit that was not removed, as it was read: sentences without the lines of units."""
        for segment in self.segments:
            for _, pair in segment.units():
                yield pair

    def chosen(self, selection: Selection) -> Iterator[SegmentPair]:
        """The live units that a selection accepts; `remove` takes the same selections."""
        for _, units in chosen_units(self.segments, selection, self.manifest.accelerators):
            for _, pair in units:
                yield pair

    def export(self, path: str | Path) -> int:
        """Write the units as TMX or TSV, by the name's ending; returns how many had characters that it cannot hold."""
        path = Path(path)
        if path.suffix == ".tsv":
            return write_tsv(path, self.units())
        if path.suffix == ".tmx":
            return write_tmx(path, self.units(), self.manifest.source_language, self.manifest.target_language)
        raise SettingError(f"{path}: expected a name that ends in .tmx or .tsv")


def identity(path: Path) -> tuple[int, ...] | None:
    """Tells a file from an earlier one with the same path; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _open_newest(
    path: Path, known: dict[SegmentRecord, Segment], guarded: bool
) -> tuple[Manifest, list[Segment], StoredProjection | None]:
    """The newest manifest with its files opened. If files vanish meanwhile, there is a newer manifest."""
    directory = path / SEGMENTS
    while True:
        manifest = read_manifest(path)
        require_directory(directory)
        try:
            segments = opened(directory, manifest, known, guarded)
            projection = (
                StoredProjection.open(directory, manifest.projection, manifest.dim, guarded)
                if manifest.projection
                else None
            )
            return manifest, segments, projection
        except DatastoreDamagedError:
            if read_manifest(path).generation == manifest.generation:
                raise


def opened(directory: Path, manifest: Manifest, known: dict[SegmentRecord, Segment], guarded: bool) -> list[Segment]:
    """The segments of a manifest; known ones are not opened again."""
    return [known.get(record) or Segment.open(directory, record, manifest, guarded) for record in manifest.segments]


def _made_for(manifest: Manifest, projection: StoredProjection | None) -> tuple[str, str, int, int]:
    """Model and tokenizer, the dimension of the model's states, and its vocabulary."""
    dim = manifest.dim if projection is None else projection.model_dim
    return manifest.model, manifest.tokenizer, dim, manifest.vocabulary
