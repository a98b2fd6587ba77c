"""Answers with an error wait if their client has had many of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.service.access import new_key
from knnmt.service.http.refusals import Refusals
from support.services import StartService

FREE, RATE, LONGEST = 50, 2.0, 20.0


class ReferenceBucket:
    """A bucket that loses two errors a second, and is looked at every millisecond."""

    def __init__(self) -> None:
        self.level, self.milliseconds = 0.0, 0

    def seconds(self, milliseconds: int) -> float:
        while self.milliseconds < milliseconds:
            self.milliseconds += 1
            self.level = max(0.0, self.level - RATE / 1_000)
        self.level = min(self.level + 1, FREE + RATE * LONGEST)
        return max(0.0, (self.level - FREE) / RATE)


@given(st.lists(st.integers(0, 200), min_size=100, max_size=200))
def test_the_wait_is_that_of_a_bucket_that_leaks(pauses: list[int]) -> None:
    milliseconds, bucket = 0, ReferenceBucket()
    tested = Refusals(FREE, lambda: milliseconds / 1_000)
    for pause in pauses:
        milliseconds += pause
        assert tested.seconds("a") == pytest.approx(bucket.seconds(milliseconds), abs=1e-6)


def test_a_client_does_not_wait_for_errors_of_another() -> None:
    tested = Refusals(FREE, lambda: 0.0)
    for _ in range(1_000):
        tested.seconds("hostile")
    assert tested.seconds("hostile") == LONGEST
    assert tested.seconds("honest") == 0.0


def test_too_many_clients_to_remember_begin_anew() -> None:
    tested = Refusals(FREE, lambda: 0.0, most=10)
    for _ in range(1_000):
        tested.seconds("first")
    for client in range(10):
        tested.seconds(client)
    assert tested.seconds("first") == 0.0


def test_errors_over_http_wait_where_others_can_reach_the_service(start_service: StartService, tmp_path: Path) -> None:
    new_key(tmp_path / "keys", "one", "translate")
    with_keys, without = start_service(keys=tmp_path / "keys"), start_service()
    began = time.monotonic()
    for _ in range(FREE + 3):
        assert with_keys.get("/nothing").status_code == 404
    assert time.monotonic() - began >= 1.0
    for _ in range(FREE + 10):
        assert without.get("/nothing").status_code == 404  # nobody else can ask, so nobody waits
