"""What `knnmt serve` sets in its process before it answers."""

from __future__ import annotations

import ctypes
import logging
import sys
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from knnmt.service.config import Limits, ServiceConfig
from knnmt.service.http import running
from knnmt.service.http.running import SWITCH_SECONDS, run
from knnmt.service.metrics import Metrics

SETTINGS = list[tuple[int, int]]


class GlibcLike:
    """A C library that notes how its allocator is set, and that freed memory was given back."""

    trimmed = Event()

    def __init__(self, noted: SETTINGS) -> None:
        self._noted = noted

    def mallopt(self, option: int, value: int) -> int:
        """As in glibc."""
        self._noted.append((option, value))
        return 1

    def malloc_trim(self, _padding: int) -> int:
        """As in glibc."""
        self.trimmed.set()
        return 1


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> SETTINGS:
    """How the allocator was set, when the server runs."""
    settings = SETTINGS()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_given: GlibcLike(settings))
    return settings


def test_threads_give_way_soon_and_share_what_they_free(monkeypatch: pytest.MonkeyPatch, noted: SETTINGS) -> None:
    """Otherwise decoding waits for every busy thread, and memory grows with the number of threads."""
    seen: list[float] = []

    def ran(*_given: object, **_more: object) -> None:
        seen.append(sys.getswitchinterval())
        assert GlibcLike.trimmed.wait(60)

    monkeypatch.setattr(uvicorn.Server, "run", ran)
    monkeypatch.setattr(running, "TRIM_SECONDS", 0.001)
    before = sys.getswitchinterval()
    service: Any = SimpleNamespace(
        config=ServiceConfig(port=0), access=SimpleNamespace(is_open=True), metrics=Metrics(), ready=True
    )
    of_requests = logging.getLogger("uvicorn.error")
    level = of_requests.level
    try:
        run(service, lambda _address: None)
        assert not of_requests.isEnabledFor(logging.WARNING), "anybody could fill the log with invalid requests"
    finally:
        sys.setswitchinterval(before)
        of_requests.setLevel(level)
    assert seen == [pytest.approx(SWITCH_SECONDS, rel=0.1)]
    assert before > SWITCH_SECONDS
    assert noted == [(-8, 2), (-3, 1 << 20)]


def test_the_process_is_gone_ten_seconds_after_it_was_told_to_end() -> None:
    """Work that is not done is refused, then abandoned; a busy machine needs time for both."""
    assert Limits().ending_seconds + 2 < 10
