"""`ShardedStore`: a store whose entries are in shards, searched by segment as if they were one store.

Statistics of sources are summed over the shards when the store is opened and refreshed. For each batch the shards get
two questions: for candidates, from which the segments are chosen here, and for the content of the chosen segments. This
content becomes a small store in memory, with which the batch is decoded. A shard that does not answer in time is left
out, with a warning.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimedOut
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import torch

from knnmt import timing
from knnmt.config import check
from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import ALIKE, Datastore
from knnmt.distributed.answers import answered_segments, is_candidates, is_lengths, is_state, usable
from knnmt.distributed.shards import AskedSource, Candidates, Shard, ShardState
from knnmt.errors import ClusterError, DatastoreMismatchError, KnnmtError, ShardWarning
from knnmt.retrieval.open_store import KEYS_SAMPLED, UNIT_SAME_DISTANCE, ChosenEntries, OpenStore, Snapshot
from knnmt.segments.covering import MAX_POSTINGS, SourceIndex
from knnmt.segments.source_side import SourceStatistics

SECONDS = 10.0  # the time that a shard has for an answer
_fetched = count()


@dataclass(frozen=True, eq=False)
class FetchedSnapshot(Snapshot):
    """The answers of the shards for a batch, as a small store.

    chosen: for each source, the entries to search, and coverage
    """

    chosen: Mapping[tuple[int, ...], tuple[Array, Any]] = field(default_factory=dict)

    def choose_segments(self, sources: Sequence[Sequence[int]], segments: int) -> ChosenEntries:  # noqa: ARG002
        """The choice for these sources among all shards. Other sources were not requested."""
        found = [self.chosen[tuple(source)] for source in sources]
        return ChosenEntries([entries for entries, _ in found], [coverage for _, coverage in found])


@dataclass(frozen=True, slots=True)
class _Shown:
    """The state of the shards at one time. states: of those that answer, by number"""

    states: Mapping[int, ShardState]
    statistics: SourceStatistics
    same_distance: float

    @property
    def live_sentences(self) -> int:
        return sum(state.live_sentences for state in self.states.values())


class FetchedStore(OpenStore):
    """A small store in memory with the answers of the shards for a batch."""

    def __init__(self, store: Datastore, device: torch.device) -> None:
        super().__init__(store, device, exact=True)


class ShardedStore(OpenStore):
    """The open store of a set of shards.

    store: the set's own place, with its model and settings; its entries count if it is one of the shards
    seconds: the time that a shard has for an answer
    pause_seconds: how long a silent shard is not asked again, so that not every text waits for it
    """

    only_by_segment = True

    def __init__(
        self,
        store: Datastore,
        shards: Sequence[Shard],
        device: torch.device | str = "cpu",
        seconds: float = SECONDS,
        pause_seconds: float = 30.0,
    ) -> None:
        check(bool(shards), f"{store.path}: expected at least one shard, found none")
        super().__init__(store, device, exact=True)
        self._shards, self._seconds, self._pause_seconds = list(shards), seconds, pause_seconds
        self._resting: dict[int, float] = {}
        self._shown = _Shown({}, SourceStatistics(0, np.empty(0, np.int64)), UNIT_SAME_DISTANCE)
        self._take_states()

    # Opening ----------------------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Move to the newest state of every shard; True if anything changed."""
        changed = super().refresh()
        return self._take_states() or changed

    def _take_states(self) -> bool:
        """Ask all shards for their states. Those that do not answer are left out until they do."""
        states, silent = self._asked(dict.fromkeys(range(len(self._shards)), ("state",)))
        states, silent = usable(states, silent, lambda _, state: is_state(state))
        for number, state in list(states.items()):
            try:
                self._require_alike(self._shards[number].name, state)
            except DatastoreMismatchError as error:
                if not self._shown.states:
                    raise  # the set was made wrongly
                silent[number] = f"no longer fits ({error})"
                del states[number]
        if not states:
            raise ClusterError(f"{self.datastore.path}: none of the shards answers: {'; '.join(self._words(silent))}")
        _warn(self._words(silent), "it is left out until it answers")
        before = {number: state.name for number, state in self._shown.states.items()}
        if before == {number: state.name for number, state in states.items()}:
            return False
        statistics = SourceStatistics.together([states[number].statistics for number in sorted(states)])
        self._shown = _Shown(states, statistics, UNIT_SAME_DISTANCE * self._usual_length(states))
        self._renumber()
        return True

    def _renumber(self) -> None:
        """Give translations from now on another state number."""
        self.snapshot = replace(self.snapshot, number=-1 - next(_fetched))

    def _require_alike(self, name: str, state: ShardState) -> None:
        ours = self.datastore.manifest
        projection = None if ours.projection is None else ours.projection.sha256
        for each in (each for each in ALIKE if each not in ("for_fast", "projection")):
            expected, found = getattr(ours, each), getattr(state.manifest, each)
            if expected != found:
                raise DatastoreMismatchError(
                    f"{name}: cannot be a shard of {self.datastore.path}: expected {each} {expected!r}, found "
                    f"{found!r}. Make the set again from shards of one model and one kind."
                )
        if projection != state.projection:
            raise DatastoreMismatchError(
                f"{name}: cannot be a shard of {self.datastore.path}: its keys were reduced by another PCA. Split "
                f"a store that was reduced, or merge the shards and reduce the merged store."
            )

    def _usual_length(self, states: Mapping[int, ShardState]) -> float:
        """The median length of keys, from the sample that one store of all shards would take; 1 without keys."""
        numbers = sorted(states)
        first = np.cumsum([0, *(states[number].entries for number in numbers)])
        if not first[-1]:
            return 1.0
        ids = np.unique(np.linspace(0, first[-1] - 1, KEYS_SAMPLED, dtype=np.int64))
        mine = np.searchsorted(first, ids, side="right") - 1
        asked = {
            number: ("lengths", states[number].name, ids[mine == place] - first[place])
            for place, number in enumerate(numbers)
            if (mine == place).any()
        }
        found, silent = self._asked(asked)
        found, silent = usable(found, silent, lambda number, given: is_lengths(given, len(asked[number][2])))
        _warn(self._words(silent), "the lengths of its keys are unknown")
        lengths = np.concatenate([np.ones(0, np.float32), *(found[number] for number in sorted(found))])
        return float(np.median(lengths)) if len(lengths) else 1.0

    def signature(self) -> str:
        """The part of a published score's signature that describes the store."""
        states = [state for _, state in sorted(self._shown.states.items()) if state.entries]
        content = hashlib.sha256(" ".join(state.name for state in states).encode()).hexdigest()[:8]
        entries = sum(state.live_entries for state in states)
        dim = self.datastore.manifest.dim
        return f"store:{self.datastore.path.name}|n:{entries}|d:{dim}|shards:{len(states)}|content:{content}|index:none"

    # For a batch ------------------------------------------------------------------------------------------------------

    def for_batch(self, sources: Sequence[Sequence[int]], segments: int | None) -> OpenStore:
        """A small store with the segments that cover some sources best, by their token ids.

        Its snapshot says which shards were left out.
        """
        check(
            segments is not None,
            f"{self.datastore.path}: a set of shards can only be searched by segment: give segments",
        )
        segments = segments or 1
        with timing.stage("shards"):
            shown = self._shown  # another thread may replace it
            missing = {each: "did not answer" for each in range(len(self._shards)) if each not in shown.states}
            known = [source[:-1] for source in sources]  # all share one deadline
            wanted = min(segments, shown.live_sentences)
            candidates, silent = self._candidates(shown, known, wanted)
            missing |= silent
            proposed, silent = self._segments(
                shown, {number: [found.sources] for number, found in candidates.items()}, of_sentences=False
            )
            missing |= silent
            index = SourceIndex(proposed, of_more=shown.statistics)
            covering = index.choose(known, wanted)
            chosen = [index.hashes_of(mine[mine >= 0]) for mine in covering.sentences]
            every = segments >= shown.live_sentences
            hashes = None if every else np.unique(np.concatenate([np.empty(0, np.uint64), *chosen]))
            asked = {
                number: ("sentences", shown.states[number].name, hashes)
                for number in sorted(candidates.keys() - silent)
            }
            parts, silent = self._asked(asked)
            missing |= silent
            segments_given, silent = self._segments(shown, parts, of_sentences=True)
            missing |= silent
            store = self._small(segments_given)
            left_out = self._words(missing)
            _warn(left_out, "its segments are left out")
            if missing:
                self._renumber()  # the next translations must ask for it again
            taken = store.snapshot
            entries = taken.index.entries
            if every:
                live = np.arange(entries.entries) if entries.live is None else np.flatnonzero(entries.live.numpy())
                own = [live] * len(sources)
            else:
                own = [entries.once(taken.source_index.entries_with(mine)) for mine in chosen]
            of_source = dict(zip(map(tuple, sources), zip(own, covering.coverage(), strict=True), strict=True))
            fields = {each: getattr(taken, each) for each in Snapshot.__dataclass_fields__}
            fields |= {"same_distance": shown.same_distance, "left_out": left_out}
            store.snapshot = FetchedSnapshot(**fields, chosen=of_source)
            return store

    def _candidates(
        self, shown: _Shown, sources: Sequence[Sequence[int]], wanted: int
    ) -> tuple[dict[int, Candidates], dict[int, str]]:
        """The candidates of each shard. Shards that could not know how high the sums are elsewhere are asked again."""
        statistics, states = shown.statistics, shown.states
        proposing = [
            tuple(statistics.proposing(statistics.idf(source), MAX_POSTINGS * wanted)) for source in map(list, sources)
        ]
        asked = [AskedSource(tokens) for tokens in proposing]

        def question(number: int) -> tuple[Any, ...]:
            return "candidates", states[number].name, asked, statistics.mean_length, wanted

        def answered(numbers: Iterable[int]) -> tuple[dict[int, Candidates], dict[int, str]]:
            given = self._asked({number: question(number) for number in numbers})
            return usable(*given, lambda _, each: is_candidates(each, len(sources)))

        found, silent = answered(states)
        highest = [max((each.highest[i] for each in found.values()), default=0.0) for i in range(len(sources))]
        short = [
            number
            for number, each in found.items()
            if any(most > reach for most, reach in zip(highest, each.reach, strict=True))
        ]
        if short:
            asked = [AskedSource(tokens, most) for tokens, most in zip(proposing, highest, strict=True)]
            again, failed = answered(short)
            found, silent = {**found, **again}, silent | failed
        return {number: each for number, each in found.items() if number not in silent}, silent

    def _small(self, segments: list[Segment]) -> FetchedStore:
        """A store in memory from the answers of the shards, in their order."""
        ours = self.datastore
        manifest = replace(ours.manifest, segments=tuple(segment.record for segment in segments), for_fast=False)
        return FetchedStore(Datastore(ours.path, manifest, segments, ours.projection), self.device)

    def _segments(
        self, shown: _Shown, parts: Mapping[int, Any], of_sentences: bool
    ) -> tuple[list[Segment], dict[int, str]]:
        """The answers of the shards as segments, in the order of the shards, and which answers cannot be part of a
        store.
        """
        found: list[Segment] = []
        malformed: dict[int, str] = {}
        for number, several in sorted(parts.items()):
            try:
                found += answered_segments(several, self.datastore, shown.states[number], number, of_sentences)
            except (KnnmtError, LookupError, TypeError, ValueError, AttributeError) as error:
                malformed[number] = f"gave an unusable answer ({str(error)[:200]})"
        return found, malformed

    def _asked(self, questions: Mapping[int, tuple[Any, ...]]) -> tuple[dict[int, Any], dict[int, str]]:
        """The answers that arrive in time, by the numbers of the shards, and why others are missing.

        All are asked at once.
        """
        now = time.monotonic()
        late = f"did not answer in {self._seconds:g} s"
        silent = {number: late for number in questions if self._resting.get(number, now) > now}
        futures: dict[int, Future[Any]] = {
            number: self._shards[number].ask(*question)
            for number, question in questions.items()
            if number not in silent
        }
        until = now + self._seconds
        answers: dict[int, Any] = {}
        for number, future in futures.items():
            try:
                answers[number] = future.result(timeout=max(0.0, until - time.monotonic()))
            except TimedOut:
                silent[number] = late
                self._resting[number] = time.monotonic() + self._pause_seconds
            except Exception as error:  # whatever the error is, this shard cannot answer now
                silent[number] = f"could not answer ({(str(error).splitlines() or [type(error).__name__])[0][:200]})"
        return answers, silent

    def _words(self, silent: Mapping[int, str]) -> tuple[str, ...]:
        return tuple(f"shard {self._shards[number].name} {silent[number]}" for number in sorted(silent))


def _warn(silent: Sequence[str], meaning: str) -> None:
    for words in silent:
        warnings.warn(f"{words}; {meaning}", ShardWarning, stacklevel=3)
