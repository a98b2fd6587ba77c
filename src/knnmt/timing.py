"""Where the time of a run went: named stages, which cost nothing unless they are recorded.

with knnmt.stage_times() as timings:
    translator.translate(texts)
print(timings.table())

A stage's seconds are its own: time spent in a stage inside it is not counted twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

_NOTHING: AbstractContextManager[None] = nullcontext()
_recording: ContextVar[Timings | None] = ContextVar("knnmt_timings", default=None)


class Timings:
    """Seconds and entries by stage, filled while `stage_times` is open."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.entries: dict[str, int] = {}
        self.total_seconds = 0.0
        self._open: list[tuple[str, float]] = []

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._open.append((name, 0.0))
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            _, inner = self._open.pop()
            self._add(name, elapsed - inner, 1, elapsed)

    def _add(self, name: str, seconds: float, times: int, elapsed: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.entries[name] = self.entries.get(name, 0) + times
        if self._open:
            parent, spent = self._open[-1]
            self._open[-1] = (parent, spent + elapsed)

    def table(self) -> str:
        """One line for each stage, largest first, and the rest."""
        rows = sorted(self.seconds.items(), key=lambda item: -item[1])
        rest = self.total_seconds - sum(self.seconds.values())
        total = self.total_seconds or 1.0
        lines = [
            f"{name:<12} {seconds:9.3f} s {100 * seconds / total:5.1f} %  {self.entries[name]:>8} times"
            for name, seconds in rows
        ]
        lines.append(f"{'the rest':<12} {rest:9.3f} s {100 * rest / total:5.1f} %")
        lines.append(f"{'total':<12} {self.total_seconds:9.3f} s")
        return "\n".join(lines)


@contextmanager
def stage_times() -> Iterator[Timings]:
    """Record the stages entered in this context until the block ends."""
    timings = Timings()
    token = _recording.set(timings)
    started = time.perf_counter()
    try:
        yield timings
    finally:
        timings.total_seconds = time.perf_counter() - started
        _recording.reset(token)


def stage(name: str) -> AbstractContextManager[None]:
    """Mark the block as belonging to stage `name`."""
    timings = _recording.get()
    return _NOTHING if timings is None else timings._stage(name)


def spent(name: str, seconds: float, times: int) -> None:
    """Count time that compiled code has measured itself, in so many entries of stage `name` inside the current one."""
    timings = _recording.get()
    if timings is not None:
        timings._add(name, seconds, times, seconds)
