from __future__ import annotations

import time

from knnmt import timing


def test_stages_are_counted_only_while_recorded_and_never_twice() -> None:
    with timing.stage("outside"):
        pass
    with timing.record() as timings:
        for _ in range(2):
            with timing.stage("outer"):
                time.sleep(0.01)
                with timing.stage("inner"):
                    time.sleep(0.03)
    assert timings.entries == {"inner": 2, "outer": 2}
    assert timings.seconds["inner"] >= 0.06
    assert 0.02 <= timings.seconds["outer"] < timings.seconds["inner"]
    assert sum(timings.seconds.values()) <= timings.total_seconds
    names = [line.split("  ")[0] for line in timings.table().splitlines()]
    assert names == ["inner", "outer", "the rest", "total"]
