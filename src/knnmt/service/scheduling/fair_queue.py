"""Which client comes next (`FairQueue`), and how much each may hold at once (`Shares`).

Each client has an account of the cost of its items that were taken. The next item is one of the client whose account is
lowest. So a client that asks for much waits for itself, and a client that asks for little hardly waits for others. A
client that comes, or comes back, starts where the clock is, which moves on with the cost of all clients: it neither
pays for the time before nor saves it up. (This is start-time fair queueing.)

An owner can have several levels, such as a client and a request: the requests of a client take turns in the same way.
Items of the same owner stay in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Collection, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Account(Generic[Item]):
    """The items of an owner.

    at: the cost of its items that were taken, on the clock of its level
    size: the number of items, with those of the next level
    clock: where the accounts of the next level start: the account of the one that was served last, before it paid
    due: by how much the clock moves on when the next one is served
    """

    at: float = 0.0
    size: int = 0
    clock: float = 0.0
    due: float = 0.0
    items: deque[tuple[Item, float]] = field(default_factory=deque)
    parts: dict[Hashable, _Account[Item]] = field(default_factory=dict)

    def put(self, owner: Sequence[Hashable], item: Item, cost: float) -> None:
        self.size += 1
        if not owner:
            self.items.append((item, cost))
            return
        part = self.parts.setdefault(owner[0], _Account())
        if not part.size:
            part.at = max(part.at, self.clock)
        part.put(owner[1:], item, cost)

    def charge(self, owner: Sequence[Hashable], cost: float) -> None:
        if not owner:
            return
        part = self.parts.setdefault(owner[0], _Account(at=self.clock))
        part.at = max(part.at, self.clock) + cost
        part.charge(owner[1:], cost)

    def in_turn(self, without: Collection[Hashable] = ()) -> Iterator[tuple[Item, float]]:
        """The items, each with its cost, in the order in which they would be taken one after the other."""
        yield from self.items
        parts = [part for name, part in self.parts.items() if part.size and name not in without]
        waiting = [(part.at, number, part.in_turn()) for number, part in enumerate(parts)]
        heapify(waiting)
        while waiting:
            at, number, items = heappop(waiting)
            if (found := next(items, None)) is not None:
                yield found
                heappush(waiting, (at + found[1], number, items))

    def remove(self, chosen: Sequence[tuple[Sequence[Hashable], Item, float]], share: float) -> float:
        """Remove items, charge this share of their costs to the accounts of the next level, and return the sum.

        chosen: each with what is left of its owner, and its cost. Accounts of other owners are not looked at, because
            an attacker can have thousands of items.
        """
        own, by_part = set[Item](), defaultdict[Hashable, list[tuple[Sequence[Hashable], Item, float]]](list)
        for owner, item, cost in chosen:
            if owner:
                by_part[owner[0]].append((owner[1:], item, cost))
            else:
                own.add(item)
        self._remove_own(own)
        self.size -= len(chosen)
        waiting = sum(part.size > 0 for part in self.parts.values())
        served = {name: self.parts[name].at for name in by_part}
        costs = {name: self.parts[name].remove(each, share) for name, each in by_part.items()}
        if share and served:
            self.clock = max(self.clock + self.due, min(served.values()))
            self.due = sum(costs.values()) / waiting  # or new owners would for ever come before those that wait
        for name, cost in costs.items():
            self.parts[name].at += cost
        if not self.size:
            self.clock, self.due, self.parts = self.clock + self.due, 0.0, {}
        self.parts = {name: part for name, part in self.parts.items() if part.size or part.at > self.clock}
        return share * sum(cost for _, _, cost in chosen)

    def _remove_own(self, chosen: set[Item]) -> None:
        while chosen and self.items and self.items[0][0] in chosen:
            chosen.remove(self.items.popleft()[0])
        if chosen:
            self.items = deque(each for each in self.items if each[0] not in chosen)


class FairQueue(Generic[Item]):
    """Items that wait. Not for several threads at once."""

    def __init__(self) -> None:
        self._all = _Account[Item]()
        self._waiting: dict[Item, tuple[Sequence[Hashable], float]] = {}  # the owner and the cost of each item

    def __len__(self) -> int:
        return self._all.size

    def put(self, owner: Sequence[Hashable], item: Item, cost: float = 1.0) -> None:
        """Add an item behind those of the same owner. An item can wait only once; its cost is above 0."""
        self._waiting[item] = owner, cost
        self._all.put(owner, item, cost)

    def in_turn(self, without: Collection[Hashable] = ()) -> Iterator[Item]:
        """The items in the order in which they would be taken one after the other.

        without: clients whose items are left out. They save up no turns meanwhile
        """
        for name in without:
            if (part := self._all.parts.get(name)) is not None:
                part.at = max(part.at, self._all.clock)
        return (item for item, _ in self._all.in_turn(without))

    def remove(self, chosen: Collection[Item]) -> None:
        """Remove items that are done next, and charge their costs to their owners."""
        self._remove(chosen, 1.0)

    def charge(self, owner: Sequence[Hashable], cost: float) -> None:
        """Charge an owner for items that were taken and cost more than was said. An empty queue forgets it."""
        self._all.charge(owner, cost)

    def forget(self, chosen: Collection[Item]) -> None:
        """Remove items that are no longer wanted."""
        self._remove(chosen, 0.0)

    def take(self) -> Item | None:
        """Remove and return the next item; None if nothing waits."""
        item = next(self.in_turn(), None)
        if item is not None:
            self.remove({item})
        return item

    def _remove(self, chosen: Collection[Item], share: float) -> None:
        known = [(item, self._waiting.pop(item)) for item in chosen if item in self._waiting]
        if known:
            self._all.remove([(owner, item, cost) for item, (owner, cost) in known], share)


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
