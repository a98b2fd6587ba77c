"""The order in which items of many clients come: nobody starves, nothing idles, and a client's items stay in order."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from knnmt.service.scheduling.fair_queue import FairQueue

Put = tuple[int, int, float]  # client, request, cost
PUTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 50).map(float)), max_size=40)
STEPS = st.lists(st.one_of(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 50).map(float)), st.none()))


def queue_of(puts: list[Put]) -> FairQueue[int]:
    queue = FairQueue[int]()
    for number, (client, request, cost) in enumerate(puts):
        queue.put((client, request), number, cost)
    return queue


def taken(queue: FairQueue[int]) -> list[int]:
    found = []
    while (item := queue.take()) is not None:
        found.append(item)
    return found


@given(STEPS)
def test_as_long_as_something_waits_something_is_taken_and_only_once(steps: list[Put | None]) -> None:
    queue, waiting = FairQueue[int](), set[int]()
    for number, step in enumerate(steps):
        if step is not None:
            queue.put(step[:2], number, step[2])
            waiting.add(number)
        else:
            item = queue.take()
            assert (item is None) == (not waiting)
            waiting.discard(-1 if item is None else item)
        assert len(queue) == len(waiting)
    assert sorted(taken(queue)) == sorted(waiting)


@given(STEPS)
def test_items_of_a_request_stay_in_order(steps: list[Put | None]) -> None:
    queue, order = FairQueue[int](), list[int]()
    for number, step in enumerate(steps):
        if step is not None:
            queue.put(step[:2], number, step[2])
        elif (item := queue.take()) is not None:
            order.append(item)
    order += taken(queue)
    requests = defaultdict[Any, list[int]](list)
    for number in order:
        requests[steps[number][:2]].append(number)  # type: ignore[index]
    assert all(numbers == sorted(numbers) for numbers in requests.values())


@given(STEPS)
def test_the_order_that_is_announced_is_the_order_that_comes(steps: list[Put | None]) -> None:
    queue = FairQueue[int]()
    for number, step in enumerate(steps):
        if step is not None:
            queue.put(step[:2], number, step[2])
        else:
            queue.take()
    assert list(queue.in_turn()) == taken(queue)


@given(PUTS)
def test_clients_that_wait_all_the_time_get_the_same_share(puts: list[Put]) -> None:
    """Of any two, neither gets more than the other by more than the largest cost of each."""
    queue, done = queue_of(puts), Counter[int]()
    left = Counter(client for client, _, _ in puts)
    most = {client: max(cost for each, _, cost in puts if each == client) for client in left}
    for number in taken(queue):
        client, _, cost = puts[number]
        done[client] += cost  # type: ignore[assignment]
        left[client] -= 1
        for one, other in combinations([each for each in left if left[each]], 2):
            assert abs(done[one] - done[other]) <= most[one] + most[other]


@given(PUTS, st.integers(0, 60), st.integers(1, 50).map(float))
def test_nobody_starves(puts: list[Put], served: int, cost: float) -> None:
    """Before a newcomer's first item, another client gets at most twice the largest cost of an item."""
    queue = queue_of(puts)
    for _ in range(served):
        queue.take()
    queue.put(("newcomer", 0), -1, cost)
    before = Counter[int]()
    for number in taken(queue):
        if number == -1:
            break
        before[puts[number][0]] += puts[number][2]  # type: ignore[assignment]
    assert max(before.values(), default=0) <= 2 * max((each for _, _, each in puts), default=0)


def test_who_waits_comes_before_endless_newcomers() -> None:
    queue = FairQueue[str]()
    queue.put(("patient",), "first")
    queue.put(("patient",), "second")
    for number in range(100):
        queue.put((f"newcomer {number}",), f"new {number}")
        if queue.take() == "second":
            break
    assert number < 10


def test_a_client_with_much_waits_for_itself() -> None:
    queue = FairQueue[str]()
    for number in range(1000):
        queue.put(("much", 0), f"much {number}", 100.0)
    first = [queue.take() for _ in range(3)]
    for number in range(5):
        queue.put(("little", number), f"little {number}", 10.0)
    assert first == ["much 0", "much 1", "much 2"]
    assert [queue.take() for _ in range(7)] == [
        "little 0",
        "little 1",
        "little 2",
        "little 3",
        "little 4",
        "much 3",
        "much 4",
    ]


class Counted:
    """An item that counts how often items are looked at."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return id(self) >> 4


def test_to_take_an_item_is_as_fast_if_thousands_wait() -> None:
    looks = []
    for size in (1_000, 8_000):
        queue = FairQueue[Counted]()
        for number in range(size):
            queue.put(("much", number % 100), Counted(), 10.0)
        Counted.looks = 0
        for _ in range(50):
            assert queue.take() is not None
        looks.append(Counted.looks)
    assert looks[0] == looks[1]


def test_requests_of_a_client_take_turns() -> None:
    queue = FairQueue[str]()
    for number in range(4):
        queue.put(("one", "long"), f"long {number}")
    queue.take()
    queue.put(("one", "short"), "short")
    assert [queue.take() for _ in range(2)] in (["long 1", "short"], ["short", "long 1"])


@given(st.integers(1, 50), st.floats(1.0, 20.0))
def test_turns_that_a_client_was_passed_over_are_not_saved_up(rounds: int, cost: float) -> None:
    queue = FairQueue[str]()
    for number in range(rounds + 2):
        queue.put(("passed over",), f"passed over {number}", cost)
    for number in range(rounds):
        queue.put(("other",), f"other {number}", cost)
        queue.remove({next(queue.in_turn({"passed over"}))})
    queue.put(("other",), "other, last", cost)
    queue.put(("new",), "new", cost)
    assert {"other, last", "new"} <= {queue.take() for _ in range(6)}


def test_time_without_requests_is_not_saved_up() -> None:
    queue = FairQueue[str]()
    queue.put(("late",), "early")
    queue.take()
    for number in range(100):
        queue.put(("busy",), f"busy {number}")
    for _ in range(50):
        queue.take()
    for number in range(50):
        queue.put(("late",), f"late {number}")
    order = [str(queue.take()).partition(" ")[0] for _ in range(10)]
    assert Counter(order) == {"late": 5, "busy": 5}


@given(PUTS, st.sets(st.integers(0, 39)))
def test_items_that_are_removed_out_of_turn_are_paid_for(puts: list[Put], chosen: set[int]) -> None:
    queue = queue_of(puts)
    queue.remove(chosen)
    assert sorted(queue.in_turn()) == [number for number in range(len(puts)) if number not in chosen]


def test_requests_that_are_over_take_no_memory() -> None:
    queue = FairQueue[int]()
    for number in range(1000):
        queue.put((number % 7, number), number, 1.0 + number % 3)
        if number % 2:
            queue.take()
            queue.take()
    queue.put(("last", 0), -1)
    assert len(pickle.dumps(queue)) < 2000


def test_what_cost_more_than_was_said_is_charged_later() -> None:
    queue = FairQueue[str]()
    for client in "ab":
        for number in range(4):
            queue.put((client,), f"{client}{number}")
    assert queue.take() == "a0"
    queue.charge(("a",), 2.0)
    assert [queue.take() for _ in range(7)] == ["b0", "b1", "b2", "a1", "b3", "a2", "a3"]


def test_a_charge_reaches_a_client_that_has_nothing_left() -> None:
    queue = FairQueue[str]()
    queue.put(("a",), "a0")
    for number in range(4):
        queue.put(("b",), f"b{number}")
    assert [queue.take(), queue.take()] == ["a0", "b0"]
    queue.charge(("a",), 2.0)
    queue.put(("a",), "a1")
    assert [queue.take() for _ in range(3)] == ["b1", "b2", "a1"]
