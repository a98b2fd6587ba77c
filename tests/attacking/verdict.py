"""What must hold after an attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from attacking.honest import Record

_LATE = 2.0  # seconds by which hostile clients may delay 99 of 100 answers
_GROWTH = 1.05
_ENDING = 10.0


@dataclass
class Observed:
    """What was seen of the service. memory: bytes, at equal intervals; ending: seconds after SIGTERM

    ready: seconds that it took to tell its memory, at equal intervals
    """

    memory: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    ending: float = 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)] if values else 0.0


def faults(record: Record, seen: Observed) -> list[str]:
    """What does not hold; nothing if the service withstood."""
    found = []
    if not record.late:
        found.append("no honest text was answered")
    if record.lost:
        found.append(f"{len(record.lost)} honest texts were not answered, such as {record.lost[0]}")
    if record.swapped:
        found.append(f"{len(record.swapped)} answers were to other texts, such as {record.swapped[0]}")
    late, undisturbed = percentile(record.late, 0.99), percentile(record.undisturbed, 0.99)
    if late - undisturbed > _LATE:
        found.append(
            f"99 of 100 answers came up to {late:.2f} s after their own decoding, more than {_LATE:g} s later than "
            f"without hostile clients ({undisturbed:.2f} s)"
        )
    before, after = memory_before_and_after(seen.memory)
    if after > _GROWTH * before:
        found.append(f"memory grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB, more than {_GROWTH - 1:.0%}")
    if seen.ending > _ENDING:
        found.append(f"the service ended {seen.ending:.1f} s after SIGTERM, more than {_ENDING:g} s")
    return found


def memory_before_and_after(memory: Sequence[float]) -> tuple[float, float]:
    """The memory in the third tenth of the time, when caches are full, and in the last: the middle values."""
    tenth = max(1, len(memory) // 10)
    before, after = memory[2 * tenth : 3 * tenth] or memory[:1], memory[-tenth:]
    return percentile(before, 0.5), percentile(after, 0.5)
