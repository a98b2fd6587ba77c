"""`FairThreads`: threads for work on what clients send, such as texts. Clients take turns by the cost of the work.

The event loop only waits for such work, so it answers others meanwhile. A client that sends much waits for itself.
Work on many texts is divided, so that a client with little to do waits for a short time even if all threads are busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Condition, Thread
from typing import Any, TypeVar

from knnmt.service.problems import ending
from knnmt.service.scheduling.fair_queue import FairQueue

_SHORT = 1_000  # characters that the event loop itself works on
_PORTION = 10_000  # characters of texts that are worked on together
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    do: Callable[[], Any]
    done: Future[Any]


def _portions(items: Sequence[Item], characters: Callable[[Item], int]) -> Iterator[tuple[list[Item], int]]:
    portion, count = list[Item](), 0
    for item in items:
        size = characters(item) + 1
        if portion and count + size > _PORTION:
            yield portion, count
            portion, count = [], 0
        portion.append(item)
        count += size
    yield portion, count


def _all(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [do(item) for item in items]


class FairThreads:
    """A number of threads. They are daemons: work that does not end does not keep the process."""

    def __init__(self, count: int, name: str) -> None:
        self._changed = Condition()
        self._queue = FairQueue[_Work]()
        self._closed = False
        for _ in range(count):
            Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, client: Hashable, cost: float, do: Callable[[], Result]) -> Future[Result]:
        """Have work done when it is the client's turn. To cancel the future takes it out of the queue.

        client: whose turns the work takes (`Caller.client`)
        cost: about how long it takes, in any unit, the same for all
        """
        work = _Work(do, Future())
        with self._changed:
            if self._closed:
                raise ending()
            self._queue.put((client,), work, max(1.0, cost))
            self._changed.notify()
        return work.done

    async def run(self, client: Hashable, characters: int, do: Callable[[], Result]) -> Result:
        """Await work on so many characters of text. If they are few, it is done at once, by the event loop.

        Cancelling the waiting task cancels work that has not begun.
        """
        if characters <= _SHORT:
            return do()
        return await asyncio.wrap_future(self.submit(client, characters, do))

    async def each(
        self,
        client: Hashable,
        items: Sequence[Item],
        do: Callable[[Item], Result],
        characters: Callable[[Item], int],
    ) -> list[Result]:
        """Await work on each of some items. Other clients have turns between them. characters: of an item"""
        results = list[Result]()
        for portion, count in _portions(items, characters):
            results += await self.run(client, count, partial(_all, do, portion))
        return results

    def close(self) -> None:
        """Accept nothing more, and refuse what has not begun."""
        with self._changed:
            self._closed = True
            waiting = list(self._queue.in_turn())
            self._queue.forget(set(waiting))
            self._changed.notify_all()
        for each in waiting:
            if each.done.set_running_or_notify_cancel():
                each.done.set_exception(ending())

    def _work(self) -> None:
        while (work := self._next()) is not None:
            if not work.done.set_running_or_notify_cancel():
                continue
            try:
                result = work.do()
            except BaseException as error:
                work.done.set_exception(error)
            else:
                work.done.set_result(result)
            del work  # what it holds is freed while the thread waits

    def _next(self) -> _Work | None:
        with self._changed:
            while not self._closed:
                if (work := self._queue.take()) is not None:
                    return work
                self._changed.wait()
            return None
