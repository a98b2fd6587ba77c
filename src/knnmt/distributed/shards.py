"""A shard: a store that is part of a larger one, and the questions that it answers for each sentence.

1. Which of its sentences could be among those that cover a source best? It returns their source tokens. The caller then
chooses among the answers of all shards, by the statistics of all, as if they were one store.
2. What does it hold of the chosen sources? It returns keys, values and texts.

Each question names the state that it is about. A shard that has moved on to another state, or does not answer, is left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import Manifest
from knnmt.datastore.merging import chosen_arrays, joined
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreError
from knnmt.segments.covering import SourceIndex
from knnmt.segments.source_side import SourceStatistics

_STATES = 3  # states that can be asked about, because callers move on at different times
_OFFSETS = ("text_offsets", "target_offsets", "source_offsets")


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of a shard at one time. name: a digest of everything in the shard; manifest: without its files"""

    name: str
    manifest: Manifest
    projection: str | None
    live_sentences: int
    live_entries: int
    entries: int
    statistics: SourceStatistics


@dataclass(frozen=True, slots=True)
class AskedSource:
    """A source whose candidates are requested: the tokens that propose sentences, with weights.

    highest: as in `SourceIndex.candidates`
    """

    proposing: tuple[tuple[int, float], ...]
    highest: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidates:
    """Sentences that could be chosen for some sources.

    sources: the arrays of their source sides, as in a segment
    highest, reach: for each source, as in `SourceIndex.candidates`
    """

    sources: dict[str, Array]
    highest: tuple[float, ...]
    reach: tuple[float, ...]


class Shard(Protocol):
    """Anything that answers like an `OpenShard`, wherever it is. name: for messages"""

    @property
    def name(self) -> str: ...

    def ask(self, what: str, *given: Any) -> Future[Any]:
        """A future of what the method of that name returns. If the shard is gone, it fails or never answers."""


class OpenShard:
    """A shard that is open in this process."""

    def __init__(self, path: Path) -> None:
        self._store = Datastore.open(path)
        self._states: dict[str, _State] = {}

    def state(self) -> ShardState:
        """Its state in the newest generation."""
        self._store.refresh()
        store = self._store.pinned()
        name = store.manifest.content
        if name not in self._states:
            earlier = list(self._states.values())[-1].sources if self._states else None
            self._states[name] = _State(store, SourceIndex(store.segments, earlier))
            for segment in store.segments:
                for offsets in _OFFSETS:
                    segment.offsets(offsets)  # raise an error here rather than for a sentence
            while len(self._states) > _STATES:
                del self._states[next(iter(self._states))]
        manifest = store.manifest
        return ShardState(
            name,
            replace(manifest, segments=(), projection=None),
            None if manifest.projection is None else manifest.projection.sha256,
            manifest.live_sentences,
            manifest.live_entries,
            manifest.entries,
            self._states[name].sources.statistics,
        )

    def candidates(self, state: str, asked: Sequence[AskedSource], mean_length: float, count: int) -> Candidates:
        """Sentences that could be among the `count` chosen ones for each source."""
        sources = self._of(state).sources
        found = [sources.candidates(each.proposing, mean_length, count, each.highest) for each in asked]
        numbers = np.unique(np.concatenate([np.empty(0, np.int64), *(each[0] for each in found)]))
        return Candidates(
            sources.tokens_of(numbers), tuple(each[1] for each in found), tuple(each[2] for each in found)
        )

    def sentences(self, state: str, hashes: Array | None) -> list[dict[str, Array]]:
        """The arrays of segments with all sentences whose sources have these hashes, in order; None for all."""
        held = self._of(state)
        return list(joined(held.cut(hashes)))

    def lengths(self, state: str, entries: Array) -> Array:
        """The lengths of the keys of some entries, (n,) float32."""
        store = self._of(state).store
        keys = np.array([store.entry(entry).key for entry in entries.tolist()], np.float32)
        lengths: Array = np.linalg.norm(keys.reshape(len(entries), -1), axis=1)
        return lengths

    def _of(self, state: str) -> _State:
        if state not in self._states:
            self.state()  # a restarted process has forgotten earlier states
        if state not in self._states:
            raise DatastoreError(
                f"{self._store.path}: the shard has moved on from the requested state. Refresh the store."
            )
        return self._states[state]


@dataclass(frozen=True, slots=True)
class _State:
    store: Datastore
    sources: SourceIndex

    def cut(self, hashes: Array | None) -> list[dict[str, Array]]:
        """The requested sentences of each segment. The cost does not grow with the store."""
        segments = self.store.segments
        if hashes is None:
            first = np.cumsum([0, *(segment.record.sentences for segment in segments)])
            live = [begin + segment.live_sentences() for begin, segment in zip(first, segments, strict=False)]
            numbers = np.concatenate([np.empty(0, np.int64), *live])
        else:
            numbers = self.sources.alike(hashes)
        return [
            chosen_arrays(segments[place].arrays, own, entries)
            for place, own, entries in self.sources.by_segment(numbers)
        ]


class LocalShard:
    """A shard of this process, opened by the first question that finds it there."""

    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path
        self._open: OpenShard | None = None

    def ask(self, what: str, *given: Any) -> Future[Any]:
        """As in `Shard`; the answer is there at once."""
        future: Future[Any] = Future()
        try:
            self._open = self._open or OpenShard(self._path)
            future.set_result(getattr(self._open, what)(*given))
        except Exception as error:  # whatever the error is, this shard cannot answer
            future.set_exception(error)
        return future
