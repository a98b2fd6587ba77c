"""What clients may hold at once: whoever has its share waits, and keeps no other waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from knnmt.service.scheduling.fair_queue import Shares

SHARE, TOTAL = 10, 25


async def _holding(shares: Shares, client: str, amount: int, done: asyncio.Event, order: list[str]) -> None:
    async with shares.hold(client, amount):
        order.append(client)
        await done.wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_client_over_its_share_waits_and_no_other_does() -> None:
    async def run() -> list[str]:
        shares, done, order = Shares(SHARE), asyncio.Event(), list[str]()
        first = asyncio.Event()
        asked = [("greedy", 6, first), *[("greedy", 6, done)] * 3, ("modest", 1, done), ("modest", 9, done)]
        tasks = [asyncio.ensure_future(_holding(shares, *each, order)) for each in asked]
        await settle()
        assert order == ["greedy", "modest", "modest"]
        first.set()
        await settle()
        assert order == ["greedy", "modest", "modest", "greedy"]
        done.set()
        await asyncio.gather(*tasks)
        return order

    assert Counter(asyncio.run(run())) == {"greedy": 4, "modest": 2}


def test_more_than_a_share_is_held_alone() -> None:
    async def run() -> None:
        shares = Shares(SHARE, TOTAL)
        async with shares.hold("a", 1000):
            assert not shares.try_hold("a", 1)
            assert not shares.try_hold("b", 1)
        assert shares.try_hold("b", 1)

    asyncio.run(run())


def test_what_was_cancelled_is_not_admitted() -> None:
    """A share comes free before the task that was cancelled has run. Somebody else's request failed of it."""

    async def run() -> None:
        shares = Shares(SHARE)
        assert shares.try_hold("a", 10)
        gone = asyncio.ensure_future(_holding(shares, "a", 10, asyncio.Event(), []))
        await settle()
        gone.cancel()
        shares.give_back("a", 10)
        await asyncio.gather(gone, return_exceptions=True)
        assert shares.try_hold("a", 10)

    asyncio.run(run())


def test_whoever_gives_up_waiting_holds_nothing() -> None:
    async def run() -> None:
        shares, done = Shares(SHARE, TOTAL), asyncio.Event()
        held = asyncio.ensure_future(_holding(shares, "a", 10, done, []))
        waiting = [asyncio.ensure_future(_holding(shares, "a", 10, done, [])) for _ in range(5)]
        await settle()
        for each in waiting[:4]:
            each.cancel()
        done.set()
        await asyncio.gather(held, waiting[4])
        assert shares.try_hold("a", SHARE)

    asyncio.run(run())


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 30), st.integers(0, 3)), max_size=40))
def test_everybody_is_served_and_no_bound_is_crossed(asked: Sequence[tuple[str, int, int]]) -> None:
    held, served = Counter[str](), 0

    async def one(shares: Shares, client: str, amount: int, steps: int) -> None:
        nonlocal served
        async with shares.hold(client, amount):
            alone = {"client": not held[client], "all": not +held}
            held[client] += amount
            assert held[client] <= SHARE or alone["client"]
            assert held.total() <= TOTAL or alone["all"]
            for _ in range(steps):
                await asyncio.sleep(0)
            held[client] -= amount
        served += 1

    async def run() -> None:
        shares = Shares(SHARE, TOTAL)
        await asyncio.gather(*(one(shares, *each) for each in asked))

    asyncio.run(run())
    assert served == len(asked)
