"""`Datastore`: a store opened for reading (`ReadableStore`), and the operations that change it.

A change takes the writer's lock, writes new files beside the old ones, and publishes a new manifest; then this object
shows the new generation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from knnmt.corpus.pairs import AnyPair, SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig, EntryProgress, clear_leftovers, write_store
from knnmt.datastore.changing import AmongSources, Holding, Selection, removed_by, write_change
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import MANIFEST, SEGMENTS, Manifest, read_manifest
from knnmt.datastore.merging import merge_segments, without_removed
from knnmt.datastore.origins import origin_test
from knnmt.datastore.reading import ReadableStore, identity, opened
from knnmt.datastore.slices import SLICE_ENTRIES, cut_slices, encode_slice
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreMismatchError, SettingError
from knnmt.progress import ignore

# Two stores must agree in these fields if segments of one are to be segments of the other.
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
class Change:
    """The result of a change."""

    added_sentences: int = 0
    added_entries: int = 0
    removed_sentences: int = 0
    removed_entries: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class Datastore(ReadableStore):
    """A datastore on disk, open at one generation.

    Threads may read from one object while another refreshes it: each call sees one generation. Only one thread at a
    time may change the store, even through different objects.
    """

    @classmethod
    def build(
        cls,
        path: str | Path,
        pairs: Iterable[AnyPair],
        engine: Engine[State],
        config: BuildConfig | None = None,
        progress: EntryProgress = ignore,
    ) -> Self:
        """Write a new store from pairs and open it, without settings. `knnmt.build` also estimates these."""
        write_store(Path(path), pairs, engine, config, progress)
        return cls.open(path)

    def add(
        self,
        pairs: Iterable[AnyPair],
        engine: Engine[State],
        progress: EntryProgress = ignore,
    ) -> Change:
        """Add pairs in one publication. The cost depends on what is added; small segments are joined with it."""
        return self._change(None, pairs, engine, progress)

    def remove(self, chosen: Selection) -> Change:
        """Remove every unit that `chosen` accepts, with its lines, in one publication."""
        return self._change(chosen, (), None, ignore)

    def replace(
        self,
        chosen: Selection,
        pairs: Iterable[AnyPair],
        engine: Engine[State],
        progress: EntryProgress = ignore,
    ) -> Change:
        """Remove and add in one publication, for example to correct a unit."""
        return self._change(chosen, pairs, engine, progress)

    def take_over(self, other: Datastore, place: int) -> Change:
        """Add a segment of another store, in one publication. Nothing is computed, so the lock is held only briefly."""
        segment, made = other.segments[place], other.manifest
        with self._writing():
            before = self.manifest
            for name in ALIKE:
                expected, found = getattr(before, name), getattr(made, name)
                if expected != found:
                    raise DatastoreMismatchError(
                        f"{other.path}: cannot be added to {self.path}: expected {name} {expected!r}, found {found!r}. "
                        "Build it with the model and the settings of the other store."
                    )
            name = segment.record.stored.file.partition("-")[2].removesuffix(".safetensors")
            added = iter([(name, without_removed(segment))])
            with other.reading():
                after = write_change(self.path, before, self.segments, {}, added, ignore)
            self._publish(after)
        return Change(after.sentences - before.sentences, after.entries - before.entries)

    def compact(self) -> Change:
        """Rewrite the store without removed sentences, in segments of full size. Entry ids change."""
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

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock at the newest generation; at the end, always remove unpublished files."""
        with writer_lock(self.path):
            self.refresh()
            before = self.manifest.generation
            clear_leftovers(self.path, self.manifest)
            try:
                yield
            finally:
                shown = self._read is not None and self._read == identity(self.path / MANIFEST)
                newest = self.manifest if shown else read_manifest(self.path)
                clear_leftovers(self.path, newest, published=newest.generation != before)

    def _change(
        self,
        chosen: Selection | None,
        pairs: Iterable[AnyPair],
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
        self, pairs: Iterable[AnyPair], engine: Engine[State], dropped: Counter[str]
    ) -> Iterator[tuple[str, dict[str, Array]]]:
        """Slices of the pairs, each with the digest for its name."""
        self.require_engine(engine)
        if self.manifest.transforms:
            raise SettingError(
                f"{self.path}: its keys were transformed after building ({', '.join(self.manifest.transforms)}): "
                "nothing can be added. Add to the original store, and make this one again."
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
        """Publish a state and show it. It is not read again, because reading a large manifest takes long."""
        self.require_unchanged()
        manifest.write(self.path)
        self._read = identity(self.path / MANIFEST)  # nobody else writes while we hold the lock
        directory = self.path / SEGMENTS
        self._show(manifest, opened(directory, manifest, self._known(), self._guarded), self.projection)


def _gone(manifest: Manifest) -> tuple[int, int]:
    """How many sentences and entries are removed."""
    return manifest.sentences - manifest.live_sentences, manifest.entries - manifest.live_entries


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
