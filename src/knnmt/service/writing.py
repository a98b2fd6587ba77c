"""Changes of stores: one at a time for each store; changes that wait are published together.

A change is answered when it is durable: its files and the manifest that names them are synced, and the translator has
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Literal

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.datastore.changing import Selection
from knnmt.datastore.correcting import Replacement, correct
from knnmt.datastore.lock import while_unlocked
from knnmt.datastore.store import Change, Datastore
from knnmt.errors import InputError
from knnmt.service.index_renewal import IndexRenewal
from knnmt.translator.translator import Translator

_WRITERS = 4  # stores that change at the same time
_TOGETHER = 1_000  # pairs in one publication


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a change.

    generation: of the store with the change
    removed: units that were removed
    replacements: one for each source that a correction changed
    """

    generation: int
    segments: int
    removed: int = 0
    replacements: tuple[Replacement, ...] = ()

    def about(self, sources: Collection[str]) -> WriteResult:
        """The result for those who changed these sources."""
        return replace(self, replacements=tuple(each for each in self.replacements if each.source in sources))


@dataclass(frozen=True, slots=True)
class WriteReport:
    """A publication, for metrics."""

    kind: Literal["add", "replace", "remove", "other"]
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A change:

    pairs to add, or to put in the place of those with the same source; units to remove; or something else.
    """

    kind: Literal["add", "replace", "remove", "other"]
    pairs: Sequence[SegmentPair]
    chosen: Selection | None
    done: Future[WriteResult]
    other: Callable[[Datastore], Change] | None = None

    def sources(self) -> set[str]:
        return {plain(pair.source) for pair in self.pairs}


class StoreWriter:
    """Changes one store, in the order of the requests."""

    def __init__(
        self,
        path: Path,
        translator: Translator,
        pool: ThreadPoolExecutor,
        renewal: IndexRenewal,
        on_write: Callable[[WriteReport], None],
        locked_seconds: float,
    ) -> None:
        self._locked_seconds = locked_seconds
        self._path, self._translator, self._pool, self._on_write = path, translator, pool, on_write
        self._renewal = renewal
        self._lock = Lock()
        self._waiting: list[_Change] = []
        self._busy = False
        self._store: Datastore | None = None

    def put(self, kind: Literal["add", "replace"], pairs: Sequence[SegmentPair]) -> Future[WriteResult]:
        """Add pairs, or replace those with the same source. Pairs that the model cannot take are errors."""
        self._require_fitting(pairs)
        return self._submit(_Change(kind, pairs, None, Future()))

    def remove(self, chosen: Selection) -> Future[WriteResult]:
        """Remove the chosen units."""
        return self._submit(_Change("remove", (), chosen, Future()))

    def do(self, change: Callable[[Datastore], Change]) -> Future[WriteResult]:
        """Make another kind of change, in its turn."""
        return self._submit(_Change("other", (), None, Future(), change))

    def renew_index(self) -> Future[None] | None:
        """Renew the index of the store if that is worthwhile."""
        return self._renewal.consider(self._opened())

    def _require_fitting(self, pairs: Sequence[SegmentPair]) -> None:
        """Raise a problem for pairs that a store would leave out, so that no pair is falsely reported as stored."""
        engine = self._translator.for_store(self._path).engine
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
                    f"segment {number}: has {longest} tokens; the model takes at most {engine.max_positions}: "
                    f"split the segment. Nothing was stored"
                )

    def _opened(self) -> Datastore:
        if self._store is None or self._store.changed:
            self._store = Datastore.open(self._path, self._translator.for_store(self._path).engine, guarded=True)
        return self._store

    def _submit(self, change: _Change) -> Future[WriteResult]:
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
                written = while_unlocked(lambda group=group: self._write(group), self._locked_seconds)  # type: ignore[misc]
            except BaseException as error:
                for each in group:
                    each.done.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                for each in group:
                    each.done.set_result(written.about(each.sources()))
                self._on_write(WriteReport(group[0].kind, len(group), time.perf_counter() - began))
                if group[0].kind != "other":  # a job renews the index itself when all its segments are there
                    self._renewal.consider(self._opened())

    def _next_group(self) -> list[_Change]:
        """The first waiting change, with the later ones that can be published with it.

        Two corrections of one source are published one after the other, so that the last one counts.
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

    def _write(self, group: Sequence[_Change]) -> WriteResult:
        store, engine, first = self._opened(), self._translator.for_store(self._path).engine, group[0]
        pairs = [pair for change in group for pair in change.pairs]
        replacements: Sequence[Replacement] = ()
        with store.reading():
            if first.other is not None:
                change = first.other(store)
            elif first.chosen is not None:
                change = store.remove(first.chosen)
            elif first.kind == "replace":
                corrected = correct(store, pairs, engine)
                change, replacements = corrected.change, corrected.replacements
            else:
                change = store.add(pairs, engine)
        self._translator.refresh_store(self._path)
        manifest = store.manifest
        return WriteResult(manifest.generation, manifest.live_sentences, change.removed_sentences, tuple(replacements))


class Writers:
    """The writers of all stores.

    on_write: is called with a report of every publication
    locked_seconds: how long another process may hold a store
    """

    def __init__(
        self,
        translator: Translator,
        on_write: Callable[[WriteReport], None] = lambda _report: None,
        locked_seconds: float = 5.0,
    ) -> None:
        self._locked_seconds = locked_seconds
        self._translator, self._on_write = translator, on_write
        self._pool = ThreadPoolExecutor(_WRITERS, "knnmt-write")
        self._renewal = IndexRenewal(translator.refresh_store)
        self._lock = Lock()
        self._writers: dict[Path, StoreWriter] = {}

    def of(self, path: Path) -> StoreWriter:
        """The writer of a store."""
        with self._lock:
            if path not in self._writers:
                self._writers[path] = StoreWriter(
                    path, self._translator, self._pool, self._renewal, self._on_write, self._locked_seconds
                )
            return self._writers[path]

    def forget(self, path: Path) -> None:
        """Forget a store that was deleted."""
        with self._lock:
            self._writers.pop(path, None)

    def close(self) -> None:
        """End when all accepted changes are written."""
        self._pool.shutdown()
        self._renewal.close()
