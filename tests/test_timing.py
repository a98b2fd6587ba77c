from __future__ import annotations

import pytest

from knnmt import stage_times, timing


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_stages_are_counted_only_while_recorded_and_never_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    with timing.stage("outside"):
        clock.now += 5
    with stage_times() as timings:
        for _ in range(2):
            with timing.stage("outer"):
                clock.now += 1
                with timing.stage("inner"):
                    clock.now += 3
        clock.now += 0.5
    assert timings.entries == {"inner": 2, "outer": 2}
    assert timings.seconds == {"inner": 6, "outer": 2}
    assert timings.total_seconds == 8.5
    names = [line.split("  ")[0] for line in timings.table().splitlines()]
    assert names == ["inner", "outer", "the rest", "total"]
