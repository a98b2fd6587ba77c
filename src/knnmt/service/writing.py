"""Changes of stores: one at a time for each, and those that wait together in one publication.

A change is answered when it lasts: its files and the manifest that names them are synced, and the translator has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.datastore.changing import Selection
from knnmt.datastore.correcting import correct
from knnmt.datastore.store import Change, Datastore
from knnmt.errors import DatastoreLockedError, InputError
from knnmt.service.index_renewal import IndexRenewal
from knnmt.translator.translator import Translator

_WRITERS = 4  # stores that change at the same time
_TOGETHER = 1_000  # pairs of one publication
_LOCKED_SECONDS = 5.0  # that another process may hold a store


@dataclass(frozen=True, slots=True)
class Written:
    """What a change did. generation: of the store, which has it; removed: units that are gone, where that was asked"""

    generation: int
    segments: int
    removed: int = 0


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What was published together, for those who measure."""

    kind: Literal["add", "replace", "remove", "other"]
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Pairs to add beside others, or in the place of those with the same source; or what to remove, or to do else."""

    kind: Literal["add", "replace", "remove", "other"]
    pairs: Sequence[SegmentPair]
    chosen: Selection | None
    done: Future[Written]
    other: Callable[[Datastore], Change] | None = None

    def sources(self) -> set[str]:
        return {plain(pair.source) for pair in self.pairs}


class StoreWriter:
    """Changes one store, in the order that changes are asked for."""

    def __init__(
        self,
        path: Path,
        translator: Translator,
        pool: ThreadPoolExecutor,
        renewal: IndexRenewal,
        told: Callable[[WriteReport], None],
    ) -> None:
        self._path, self._translator, self._pool, self._told = path, translator, pool, told
        self._renewal = renewal
        self._lock = Lock()
        self._waiting: list[_Change] = []
        self._busy = False
        self._store: Datastore | None = None

    def put(self, kind: Literal["add", "replace"], pairs: Sequence[SegmentPair]) -> Future[Written]:
        """Add pairs, or let them replace what has the same source; pairs that the model cannot take are refused."""
        self._require_fitting(pairs)
        return self._submit(_Change(kind, pairs, None, Future()))

    def remove(self, chosen: Selection) -> Future[Written]:
        """Remove the units that are chosen."""
        return self._submit(_Change("remove", (), chosen, Future()))

    def do(self, change: Callable[[Datastore], Change]) -> Future[Written]:
        """A change of another kind, in its turn."""
        return self._submit(_Change("other", (), None, Future(), change))

    def _require_fitting(self, pairs: Sequence[SegmentPair]) -> None:
        """Refuse pairs that a store would leave out: nothing may be said to be stored that is not."""
        engine = self._translator.engine
        accelerators = self._opened().manifest.accelerators
        seen = [for_model(pair, accelerators) for pair in pairs]
        sides = zip(
            engine.tokenizer.encode_sources([pair.source for pair in seen]),
            engine.tokenizer.encode_targets([pair.target for pair in seen]),
            strict=True,
        )
        for number, tokens in enumerate(sides):
            if (longest := max(map(len, tokens))) > engine.max_positions:
                raise InputError(
                    f"segment {number}: has {longest} tokens, and the model takes at most {engine.max_positions}: "
                    "divide it. Nothing was stored"
                )

    def _opened(self) -> Datastore:
        if self._store is None:
            self._store = Datastore.open(self._path, self._translator.engine)
        return self._store

    def _submit(self, change: _Change) -> Future[Written]:
        with self._lock:
            self._waiting.append(change)
            if not self._busy:
                self._busy = True
                self._pool.submit(self._work)
        return change.done

    def _work(self) -> None:
        while group := self._next_group():
            began = time.perf_counter()
            try:
                written = _while_unlocked(lambda group=group: self._write(group))  # type: ignore[misc]
            except BaseException as error:
                for each in group:
                    each.done.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                for each in group:
                    each.done.set_result(written)
                self._told(WriteReport(group[0].kind, len(group), time.perf_counter() - began))
                if group[0].kind != "other":  # a job looks after the index itself, when all of it is there
                    self._renewal.consider(self._opened())

    def _next_group(self) -> list[_Change]:
        """The first of the changes that wait, with those after it that can be published with it.

        A source that is corrected twice is corrected one after the other: the last one counts.
        """
        with self._lock:
            group = self._waiting[:1]
            sources = group[0].sources() if group else set()
            for each in self._waiting[1:]:
                count = sum(len(change.pairs) for change in group) + len(each.pairs)
                alike = each.kind == group[0].kind in ("add", "replace")
                if not alike or count > _TOGETHER or sources & each.sources():
                    break
                group.append(each)
                sources |= each.sources()
            del self._waiting[: len(group)]
            self._busy = bool(group)
            return group

    def _write(self, group: Sequence[_Change]) -> Written:
        store, engine, first = self._opened(), self._translator.engine, group[0]
        pairs = [pair for change in group for pair in change.pairs]
        if first.other is not None:
            change = first.other(store)
        elif first.chosen is not None:
            change = store.remove(first.chosen)
        elif first.kind == "replace":
            change = correct(store, pairs, engine).change
        else:
            change = store.add(pairs, engine)
        self._translator.memories.refresh([self._path])
        return Written(store.manifest.generation, store.manifest.live_sentences, change.removed_sentences)


class Writers:
    """The writers of all stores. told: is called with a report of every publication"""

    def __init__(self, translator: Translator, told: Callable[[WriteReport], None] = lambda _report: None) -> None:
        self._translator, self._told = translator, told
        self._pool = ThreadPoolExecutor(_WRITERS, "knnmt-write")
        self._renewal = IndexRenewal(translator.memories)
        self._lock = Lock()
        self._writers: dict[Path, StoreWriter] = {}

    def of(self, path: Path) -> StoreWriter:
        """The writer of a store."""
        with self._lock:
            if path not in self._writers:
                self._writers[path] = StoreWriter(path, self._translator, self._pool, self._renewal, self._told)
            return self._writers[path]

    def forget(self, path: Path) -> None:
        """Let go of a store that is no longer there."""
        with self._lock:
            self._writers.pop(path, None)

    def close(self) -> None:
        """End when all that was asked for is written."""
        self._pool.shutdown()
        self._renewal.close()


def _while_unlocked(write: Callable[[], Written]) -> Written:
    """Write, or wait a while for another process that does."""
    until = time.monotonic() + _LOCKED_SECONDS
    while True:
        try:
            return write()
        except DatastoreLockedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
