"""`Shares`: how much of something each client may hold at once, such as memory. Whoever has its share waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from knnmt.service.fair_queue import FairQueue


@dataclass(slots=True, eq=False)
class _Waiting:
    client: Hashable
    amount: int
    admitted: asyncio.Future[None]


class Shares:
    """What clients hold. Only for the thread of one event loop.

    share: of one client; more is possible if the client holds nothing
    total: of all clients together; more is possible if nobody holds anything. None for any amount
    """

    def __init__(self, share: int, total: int | None = None) -> None:
        self._share, self._total = share, total
        self._held = Counter[Hashable]()
        self._sum = 0
        self._queue = FairQueue[_Waiting]()

    @asynccontextmanager
    async def hold(self, client: Hashable, amount: int) -> AsyncIterator[None]:
        """Hold an amount, after waiting for it if necessary. Clients take turns; each of them is served in order."""
        waiting = _Waiting(client, amount, asyncio.get_running_loop().create_future())
        self._queue.put((client,), waiting, max(1, amount))
        self._admit()
        try:
            await waiting.admitted
            yield
        finally:
            self._leave(waiting)

    def try_hold(self, client: Hashable, amount: int) -> bool:
        """Hold an amount if that is possible at once. It has to be given back."""
        if not self._fits_share(client, amount) or not self._fits_total(amount):
            return False
        self._count(client, amount)
        return True

    def give_back(self, client: Hashable, amount: int) -> None:
        """Give an amount back, which others may then hold."""
        self._count(client, -amount)
        self._admit()

    def _leave(self, waiting: _Waiting) -> None:
        if waiting.admitted.done() and not waiting.admitted.cancelled():
            self.give_back(waiting.client, waiting.amount)
        else:
            self._queue.forget({waiting})
            self._admit()  # it may have kept back others

    def _admit(self) -> None:
        full = set[Hashable]()
        while (waiting := next(self._queue.in_turn(full), None)) is not None:
            if waiting.admitted.cancelled():  # its task has not run since
                self._queue.forget({waiting})
                continue
            if not self._fits_total(waiting.amount):
                return  # nobody passes, or large amounts would wait for ever
            if self._fits_share(waiting.client, waiting.amount):
                self._queue.remove({waiting})
                self._count(waiting.client, waiting.amount)
                waiting.admitted.set_result(None)
            else:
                full.add(waiting.client)

    def _fits_share(self, client: Hashable, amount: int) -> bool:
        return self._held[client] + amount <= self._share or not self._held[client]

    def _fits_total(self, amount: int) -> bool:
        return self._total is None or self._sum + amount <= self._total or not self._sum

    def _count(self, client: Hashable, amount: int) -> None:
        self._sum += amount
        self._held[client] += amount
        if not self._held[client]:
            del self._held[client]
