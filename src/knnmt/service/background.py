"""`Background`: work that goes on after the request that sent it, in the same way whatever the work is.

A record says what somebody has sent and what became of it: it waits, runs, and is then done, failed or cancelled.
Threads take the record that has waited longest. Records never change; `update` replaces them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, Generic, Literal, TypeVar

from knnmt.errors import KnnmtError
from knnmt.progress import ignore
from knnmt.service.problems import Problem, problem_of

_log = logging.getLogger("knnmt.service")
State = Literal["waiting", "running", "done", "failed", "cancelled"]
OVER: tuple[State, ...] = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRecord:
    """What somebody has sent, and what became of it.

    name: the sender's name of it
    by: the name of the sender's key
    done, of: the parts that are done, and their number once it is known
    message: why it failed

    Times are seconds since 1970.
    """

    id: str
    name: str
    by: str
    created: float = field(default_factory=time.time)
    state: State = "waiting"
    done: int = 0
    of: int | None = None
    ended: float | None = None
    message: str | None = None

    @property
    def is_over(self) -> bool:
        return self.state in OVER


Record = TypeVar("Record", bound=WorkRecord)


class UnwantedError(Exception):
    """A record is no longer wanted, or the service ends: its work ends, too."""


class Background(Generic[Record]):
    """The records of one kind of work. Threads may share it.

    do: does the work of a record; an error that it raises becomes the record's message
    in_words: an error's message for the sender of a record
    save: is called with every new state of a record, before anybody else sees it
    clear: is called with a record that is over, before anybody sees that
    place: records with the same place run one after the other; by default, all may run at the same time
    """

    def __init__(
        self,
        threads: int,
        name: str,
        do: Callable[[Record], object],
        in_words: Callable[[Record, str], str],
        *,
        save: Callable[[Record], object] = ignore,
        clear: Callable[[Record], object] = ignore,
        place: Callable[[Record], Hashable] = lambda record: record.id,
    ) -> None:
        self._name, self._do, self._in_words, self._save, self._clear = name, do, in_words, save, clear
        self._place = place
        self._pool = ThreadPoolExecutor(threads, f"knnmt-{name}")
        self._changing = RLock()
        self._records: dict[str, Record] = {}
        self._over: dict[str, Future[Record]] = {}
        self._stops: dict[str, Callable[[], object]] = {}
        self._unwanted: set[str] = set()
        self._closed = False

    def __iter__(self) -> Iterator[Record]:
        known = list(self._records.values())  # in one step, whatever changes meanwhile
        return iter(sorted(known, key=lambda record: record.created))

    @property
    def is_closed(self) -> bool:
        """Whether the service ends."""
        return self._closed

    def get(self, number: str) -> Record | None:
        """A record by its id."""
        return self._records.get(number)

    def over(self, number: str) -> Future[Record]:
        """The record of this id when it is over."""
        return self._over[number]

    def resume(self, records: Iterable[Record]) -> None:
        """Take up records from before a restart. Those that are not over wait again."""
        for record in records:
            self._keep(record)
            if record.is_over:
                self._clear(record)
                self._over[record.id].set_result(record)
            elif record.state == "running":
                self.update(record, state="waiting")
        for record in self:
            if not record.is_over:
                self._pool.submit(self._work)

    def add(self, record: Record) -> None:
        """Have the work of a new record done."""
        with self._changing:
            self._save(record)
            self._keep(record)
            self._pool.submit(self._work)

    def update(self, record: Record, **changes: Any) -> Record:
        """Change a record, whatever has changed of it meanwhile; raise `UnwantedError` if it was forgotten."""
        with self._changing:
            if record.id not in self._records:
                raise UnwantedError
            changed = replace(self._records[record.id], **changes)
            self._save(changed)
            self._records[record.id] = changed
            return changed

    @contextmanager
    def stopped_by(self, record: Record, stop: Callable[[], object]) -> Iterator[None]:
        """Let `stop` end a part of the work, the block, if the record is cancelled or the service ends.

        Afterwards, the work of a record that is no longer wanted ends with `UnwantedError`.
        """
        with self._changing:
            self._stops[record.id] = stop
            if self._closed or record.id in self._unwanted:
                stop()
        try:
            yield
        finally:
            with self._changing:
                self._stops.pop(record.id, None)
            if self._closed or record.id in self._unwanted:
                raise UnwantedError

    def cancel(self, record: Record, require: Callable[[Record], object] = ignore) -> Record:
        """Cancel what is not over. require: raises a problem for a record that cannot be cancelled"""
        with self._changing:
            known = self._records.get(record.id, record)
            if known.is_over:
                return known
            require(known)
            self._unwanted.add(known.id)
            if known.state == "waiting":
                return self._end(known, "cancelled")
            if stop := self._stops.get(known.id):
                stop()
        return known

    def forget(self, record: Record) -> None:
        """Cancel a record if it is not over, and let nobody see it any more."""
        self.cancel(record)
        with self._changing:
            known, over = self._records.pop(record.id, record), self._over.pop(record.id, None)
            if over is not None and not over.done():
                over.set_result(replace(known, state="cancelled"))

    def close(self) -> None:
        """End. Records that are not over stay as they are."""
        with self._changing:
            self._closed = True
            for stop in list(self._stops.values()):
                stop()
        self._pool.shutdown(cancel_futures=True)

    def _keep(self, record: Record) -> None:
        over: Future[Record] = Future()
        over.set_running_or_notify_cancel()  # whoever waits for it cannot cancel it for others
        self._records[record.id], self._over[record.id] = record, over

    def _work(self) -> None:
        while (record := self._next()) is not None:
            try:
                self._do(record)
                self._end(record, "done")
            except UnwantedError:
                if not self._closed:
                    self._end(record, "cancelled")
            except Problem as problem:
                self._end(record, "failed", problem.message)
            except KnnmtError as error:
                self._end(record, "failed", self._in_words(record, problem_of(error).message))
            except Exception:
                if record.id not in self._unwanted:
                    _log.exception("the %s %s failed", self._name, record.id)
                self._end(record, "failed", "the service failed; its log says why")

    def _next(self) -> Record | None:
        """The record that has waited longest and whose place no other one uses."""
        with self._changing:
            busy = {self._place(record) for record in self._records.values() if record.state == "running"}
            waiting = (record for record in self if record.state == "waiting" and self._place(record) not in busy)
            record = None if self._closed else next(waiting, None)
            return None if record is None else self.update(record, state="running")

    def _end(self, record: Record, state: State, message: str | None = None) -> Record:
        """Save that a record is over, delete what its work needed, and only then report it."""
        with self._changing:
            over = replace(self._records.get(record.id, record), state=state, message=message, ended=time.time())
            if record.id in self._records:
                self._save(over)
        self._clear(over)
        with self._changing:
            self._unwanted.discard(over.id)
            if over.id in self._records:
                self._records[over.id] = over
                self._over[over.id].set_result(over)
        return over
