"""`Datastore`: a store opened for reading, and the ways it changes.

An open store is a snapshot: it shows one generation until `refresh` moves it to the newest. A change takes the writer's
lock, writes new files beside the old ones, and publishes a new manifest; then this object shows the new generation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.corpus.writing import write_tmx, write_tsv
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig, EntryProgress, build, clear_leftovers, no_progress
from knnmt.datastore.changing import AmongSources, Holding, Selection, chosen_units, removed_by, write_change
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import MANIFEST, SEGMENTS, Manifest, SegmentRecord, read_manifest
from knnmt.datastore.merging import merge_segments, without_removed
from knnmt.datastore.origins import origin_test
from knnmt.datastore.projection import StoredProjection
from knnmt.datastore.publication import require_directory
from knnmt.datastore.segment import Segment
from knnmt.datastore.settings import read_settings
from knnmt.datastore.slices import SLICE_ENTRIES, cut_slices, encode_slice
from knnmt.datastore.source_hashes import possible_hashes, sentences_with
from knnmt.datastore.upgrading import lacking, supplement, write_supplement
from knnmt.datastore.verification import problems_of
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, SettingError

# What two stores must have in common for segments of one to be segments of the other.
ALIKE = (
    "model",
    "tokenizer",
    "source_language",
    "target_language",
    "dim",
    "vocabulary",
    "key_dtype",
    "compute_dtype",
    "for_fast",
    "accelerators",
    "transforms",
    "projection",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One (key, value) pair, and where it stands.

    id: holds until the store is compacted
    position: the place of the value in the target's token ids
    """

    id: int
    key: Array
    value: int
    pair: SegmentPair
    target_tokens: Array
    position: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What a change did."""

    added_sentences: int = 0
    added_entries: int = 0
    removed_sentences: int = 0
    removed_entries: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class _Generation(NamedTuple):
    """What an open store shows. It is put in the place of another whole, so that threads see the one or the other."""

    manifest: Manifest
    segments: list[Segment]
    projection: StoredProjection | None
    first_entry: Array


class Datastore:
    """A datastore on disk, open at one generation.

    Threads may read from one object while another refreshes it: each call sees one generation. Only one thread at a
    time may change the store, through whatever object.
    """

    def __init__(
        self, path: Path, manifest: Manifest, segments: list[Segment], projection: StoredProjection | None = None
    ) -> None:
        self.path = path
        self._read: tuple[int, ...] | None = None  # which file the manifest was read from, where that is known
        self._show(manifest, segments, projection)

    def _show(self, manifest: Manifest, segments: list[Segment], projection: StoredProjection | None) -> None:
        first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
        self._shown = _Generation(manifest, segments, projection, first_entry)

    @property
    def manifest(self) -> Manifest:
        """What the store is in this generation."""
        return self._shown.manifest

    @property
    def segments(self) -> list[Segment]:
        """Its segments, in the order of their entries; every change and every refresh makes a new list."""
        return self._shown.segments

    @property
    def projection(self) -> StoredProjection | None:
        """How its keys were reduced, where they were."""
        return self._shown.projection

    def __reduce__(self) -> tuple[Callable[[Path], Datastore], tuple[Path]]:
        """By its place, for worker processes: whoever unpickles it opens the newest generation there."""
        return type(self).open, (self.path.absolute(),)

    def pinned(self) -> Datastore:
        """This generation as an object of its own, which stays at it whatever becomes of this one."""
        manifest, segments, projection, _ = self._shown
        return Datastore(self.path, manifest, segments, projection)

    # Opening ----------------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path, engine: Engine[State] | None = None, verify: bool = False) -> Self:
        """Open a store. An engine that it was not built with is refused; with `verify`, every byte is checked."""
        path = Path(path)
        manifest, segments, projection = _open_newest(path, {})
        store = cls(path, manifest, segments, projection)
        if engine is not None:
            store.require_engine(engine)
        problems = list(store.verify()) if verify else []
        if problems:
            raise DatastoreDamagedError(
                f"{path}: {len(problems)} problems, the first: {problems[0]}. Restore the files, or build again."
            )
        return store

    @classmethod
    def build(
        cls,
        path: str | Path,
        pairs: Iterable[SegmentPair],
        engine: Engine[State],
        config: BuildConfig | None = None,
        progress: EntryProgress = no_progress,
    ) -> Self:
        """Build a new store from pairs and open it; `knnmt.datastore.building` says how, and counts what it drops.

        Its settings and its index are made by what stands above: `knnmt.fitting.ready_store` does both.
        """
        build(Path(path), pairs, engine, config, progress)
        return cls.open(path)

    def refresh(self) -> bool:
        """Move to the newest generation; True if there was a newer one. Segments that stay are not opened again."""
        found = _identity(self.path / MANIFEST)  # before it is read: what comes later is seen the next time
        if found is not None and found == self._read:
            return False
        manifest, segments, projection = _open_newest(self.path, self._known())
        newer = manifest.generation != self.manifest.generation
        made_for = _made_for(self.manifest, self.projection)
        if _made_for(manifest, projection) != made_for:
            raise DatastoreMismatchError(f"{self.path}: a store of another model replaced the open one. Open it again.")
        if manifest != self.manifest:
            self._show(manifest, segments, projection)
        self._read = found
        return newer

    def _known(self) -> dict[SegmentRecord, Segment]:
        return {segment.record: segment for segment in self.segments}

    def require_engine(self, engine: Engine[State]) -> None:
        """Refuse a model that the store was not built with, and keys and values that cannot be of this one."""
        self.manifest.require_engine(self.path, engine)
        *_, dim, vocabulary = _made_for(self.manifest, self.projection)
        if (dim, vocabulary) != (engine.dim, engine.vocabulary_size):
            raise DatastoreDamagedError(
                f"{self.path}: its keys are of states of {dim} dimensions and its values of {vocabulary:,} tokens; the "
                f"model it was built with has {engine.dim} and {engine.vocabulary_size:,}. Build the store again."
            )

    def verify(self) -> Iterator[str]:
        """What is wrong with the store, one line each: every checksum, and all that must hold between its arrays."""
        manifest, segments, projection, _ = self._shown
        yield from problems_of(manifest, segments, projection)
        try:
            read_settings(self.path)
        except DatastoreDamagedError as error:
            yield str(error)

    # Reading ----------------------------------------------------------------------------------------------------------

    @property
    def model_dim(self) -> int:
        """Dimensions of the model's states: those of the keys, unless they were reduced."""
        return _made_for(self.manifest, self.projection)[2]

    @property
    def entries(self) -> int:
        """How many entry ids there are; `manifest.live_entries` counts those not removed."""
        return self.manifest.entries

    def locate(self, entry: int) -> tuple[Segment, int]:
        """The segment of an entry id, and the entry's place in it."""
        _, segments, _, first_entry = self._shown
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
        """Those of them that have one of these sources, and perhaps some that are forms of one; no others are read."""
        hashes, accelerators = possible_hashes(sources), self.manifest.accelerators
        for segment in self.segments:
            for sentence in sentences_with(segment, hashes, accelerators).tolist():
                yield segment.pair(sentence)

    def units(self) -> Iterator[SegmentPair]:
        """Every unit that was not removed, as it was read: those of the sentences that are no lines of another."""
        for segment in self.segments:
            for _, pair in segment.units():
                yield pair

    def chosen(self, selection: Selection) -> Iterator[SegmentPair]:
        """Those of them that a selection accepts, as `remove` takes it."""
        for _, units in chosen_units(self.segments, selection, self.manifest.accelerators):
            for _, pair in units:
                yield pair

    def export(self, path: str | Path) -> int:
        """Write the units as TMX or TSV, by the name's ending; returns how many had characters it cannot hold."""
        path = Path(path)
        if path.suffix == ".tsv":
            return write_tsv(path, self.units())
        if path.suffix == ".tmx":
            return write_tmx(path, self.units(), self.manifest.source_language, self.manifest.target_language)
        raise SettingError(f"{path}: expected a name that ends in .tmx or .tsv, to know what to write")

    # Changing ---------------------------------------------------------------------------------------------------------

    def add(
        self,
        pairs: Iterable[SegmentPair],
        engine: Engine[State],
        progress: EntryProgress = no_progress,
    ) -> Change:
        """Add pairs, in one publication, whose cost depends on what is added; small segments are joined with it."""
        return self._change(None, pairs, engine, progress)

    def remove(self, chosen: Selection) -> Change:
        """Remove every unit that `chosen` accepts, with its lines, in one publication."""
        return self._change(chosen, (), None, no_progress)

    def replace(
        self,
        chosen: Selection,
        pairs: Iterable[SegmentPair],
        engine: Engine[State],
        progress: EntryProgress = no_progress,
    ) -> Change:
        """Remove and add in one publication: a corrected unit takes its own place."""
        return self._change(chosen, pairs, engine, progress)

    def take_over(self, other: Datastore, place: int) -> Change:
        """Add a segment of another store, in one publication. Nothing is computed, so that the lock is held shortly."""
        segment, made = other.segments[place], other.manifest
        with self._writing():
            before = self.manifest
            for name in ALIKE:
                expected, found = getattr(before, name), getattr(made, name)
                if expected != found:
                    raise DatastoreMismatchError(
                        f"{other.path}: cannot be added to {self.path}: expected {name} {expected!r}, found {found!r}. "
                        "Build it with the model and the settings of the other."
                    )
            name = segment.record.stored.file.partition("-")[2].removesuffix(".safetensors")
            added = iter([(name, without_removed(segment))])
            after = write_change(self.path, before, self.segments, {}, added, no_progress)
            self._publish(after)
        return Change(after.sentences - before.sentences, after.entries - before.entries)

    def compact(self) -> Change:
        """Write the store anew without removed sentences, in segments of full size. Entry ids change."""
        with self._writing():
            before = self.manifest
            small = [record for record in before.segments if record.entries < SLICE_ENTRIES // 2]
            if before.live_entries == before.entries and len(small) <= 1:
                return Change()
            records, new = merge_segments(self.path / SEGMENTS, self.segments, before.next_segment)
            self._publish(before.changed(tuple(records), before.next_segment + new))
        return Change(
            removed_sentences=before.sentences - before.live_sentences,
            removed_entries=before.entries - before.live_entries,
        )

    def upgrade(self, engine: Engine[State], passes: bool = True, progress: EntryProgress = no_progress) -> int:
        """Give segments of earlier versions what those of today have; returns how many lacked something.

        passes: with what needs a forced pass over their text, the alignment and the model's scores, as well
        progress: is called with the sentences and entries of the segments that are done

        Each segment is published when it is done: readers and writers go on meanwhile, and whoever is interrupted
        begins with the next one. Entry numbers stay, and so does an index.
        """
        self.require_engine(engine)
        self.refresh()
        upgraded = sentences = entries = 0
        while (segment := next((each for each in self.segments if lacking(each, passes)), None)) is not None:
            made = supplement(segment, engine, self.manifest, passes)
            with self._writing():
                before = self.manifest
                places = [record.stored for record in before.segments]
                if segment.record.stored in places:  # else it was written anew meanwhile
                    place = places.index(segment.record.stored)
                    directory, generation = self.path / SEGMENTS, before.generation + 1
                    stored = write_supplement(directory, self.segments[place], made, generation)
                    records = list(before.segments)
                    records[place] = replace(records[place], supplement=stored)
                    self._publish(before.changed(tuple(records)))
            upgraded, sentences = upgraded + 1, sentences + segment.record.sentences
            entries += segment.record.entries
            progress(sentences, entries)
        return upgraded

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock at the newest generation; at the end, whatever happened, nothing unpublished is left behind."""
        with writer_lock(self.path):
            self.refresh()
            before = self.manifest.generation
            clear_leftovers(self.path, self.manifest)
            try:
                yield
            finally:
                shown = self._read is not None and self._read == _identity(self.path / MANIFEST)
                newest = self.manifest if shown else read_manifest(self.path)
                clear_leftovers(self.path, newest, published=newest.generation != before)

    def _change(
        self,
        chosen: Selection | None,
        pairs: Iterable[SegmentPair],
        engine: Engine[State] | None,
        progress: EntryProgress,
    ) -> Change:
        dropped: Counter[str] = Counter()
        with self._writing():
            before = self.manifest
            removed = {} if chosen is None else removed_by(self.segments, chosen, self.manifest.accelerators)
            added = iter(()) if engine is None else self._encoded(pairs, engine, dropped)
            after = write_change(self.path, before, self.segments, removed, added, progress)
            if after != before:
                self._publish(after)
        return Change(
            added_sentences=after.sentences - before.sentences,
            added_entries=after.entries - before.entries,
            removed_sentences=_gone(after)[0] - _gone(before)[0],
            removed_entries=_gone(after)[1] - _gone(before)[1],
            dropped=dropped,
        )

    def _encoded(
        self, pairs: Iterable[SegmentPair], engine: Engine[State], dropped: Counter[str]
    ) -> Iterator[tuple[str, dict[str, Array]]]:
        """Slices of the pairs, each with the digest that names it."""
        self.require_engine(engine)
        if self.manifest.transforms:
            raise SettingError(
                f"{self.path}: its keys were changed after building ({', '.join(self.manifest.transforms)}): "
                "nothing can be added. Add to the store it was made from, and make this one again."
            )
        if (dtype := engine.computes_in) != self.manifest.compute_dtype:
            raise SettingError(
                f"{self.path}: its keys were computed in {self.manifest.compute_dtype}; this engine computes in "
                f"{dtype}. Load the model with dtype={self.manifest.compute_dtype!r}."
            )
        manifest, batch_tokens = self.manifest, BuildConfig().batch_tokens
        for part in cut_slices(pairs, engine.tokenizer, engine.max_positions, dropped, manifest.accelerators):
            yield part.digest(), encode_slice(engine, part, manifest.key_dtype, batch_tokens, manifest.for_fast)

    def _publish(self, manifest: Manifest) -> None:
        """Publish a state and show it. The manifest of a large store takes long to read: it is known here."""
        manifest.write(self.path)
        self._read = _identity(self.path / MANIFEST)  # nobody else writes while we hold the lock
        directory = self.path / SEGMENTS
        self._show(manifest, _opened(directory, manifest, self._known()), self.projection)


def _identity(path: Path) -> tuple[int, ...] | None:
    """What tells a file from the one that was in its place before; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _gone(manifest: Manifest) -> tuple[int, int]:
    """How many sentences and entries are removed."""
    return manifest.sentences - manifest.live_sentences, manifest.entries - manifest.live_entries


def _open_newest(
    path: Path, known: dict[SegmentRecord, Segment]
) -> tuple[Manifest, list[Segment], StoredProjection | None]:
    """The newest manifest with its files opened. Files that vanish meanwhile mean that there is a newer one."""
    directory = path / SEGMENTS
    while True:
        manifest = read_manifest(path)
        require_directory(directory)
        try:
            segments = _opened(directory, manifest, known)
            projection = (
                StoredProjection.open(directory, manifest.projection, manifest.dim) if manifest.projection else None
            )
            return manifest, segments, projection
        except DatastoreDamagedError:
            if read_manifest(path).generation == manifest.generation:
                raise


def _opened(directory: Path, manifest: Manifest, known: dict[SegmentRecord, Segment]) -> list[Segment]:
    return [known.get(record) or Segment.open(directory, record, manifest) for record in manifest.segments]


def _made_for(manifest: Manifest, projection: StoredProjection | None) -> tuple[str, str, int, int]:
    """Model and tokenizer, the dimension of the model's states, and its vocabulary."""
    dim = manifest.dim if projection is None else projection.model_dim
    return manifest.model, manifest.tokenizer, dim, manifest.vocabulary


def matching(origin: str | None = None, source_text: str | None = None, match: str | None = None) -> Selection:
    """Accepts the sentences that meet all given conditions.

    origin: a complete origin, or a file (all its units) by its path or name (see `knnmt.datastore.origins`)
    source_text: the complete source text, with or without its accelerator
    match: a regular expression found in the source or the target
    """
    if origin is None and source_text is None and match is None:
        raise SettingError("give an origin, a source text, or an expression to match")
    try:
        pattern = None if match is None else re.compile(match)
    except re.error as error:
        raise SettingError(f"{match!r} is not a regular expression: {error}") from error

    of_origin = None if origin is None else origin_test(origin)

    def accepts(pair: SegmentPair) -> bool:
        return (
            (of_origin is None or of_origin(pair.origin))
            and (source_text is None or _is_source(source_text, pair))
            and (pattern is None or bool(pattern.search(pair.source) or pattern.search(pair.target)))
        )

    if source_text is not None:
        return AmongSources([source_text], accepts)
    return accepts if origin is None else Holding(max(origin.split("*"), key=len), accepts)


def _is_source(text: str, pair: SegmentPair) -> bool:
    return plain(text) in (plain(pair.source), plain(for_model(pair).source))
