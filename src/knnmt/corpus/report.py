"""What became of every unit of a memory: taken, left out and why, or malformed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.errors import MalformedMemoryError

_PROBLEMS_KEPT = 20
_EMPTY = "empty source or target"


class UnitError(Exception):
    """A unit is not what its format says; the reader of the format adds the place and tells the report."""


@dataclass(slots=True)
class ReadingReport:
    """Counters that fill while memories are read.

    `pairs` were handed on; `skipped` units were sound and left out, by reason; `noted` counts things a reader should
    know of pairs that were taken; `malformed` counts what was broken, and `problems` describes the first of those.
    """

    pairs: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    malformed: int = 0

    def skip(self, reason: str, count: int = 1) -> None:
        """Count sound units that are left out."""
        self.skipped[reason] += count

    def note(self, remark: str) -> None:
        """Count something that does not keep a unit out."""
        self.noted[remark] += 1

    def problem(self, place: str, message: str, config: ReadingConfig) -> None:
        """Stop at something malformed, or count it, as the settings ask."""
        full = f"{place}: {message}"
        if config.on_error == "stop":
            raise MalformedMemoryError(
                f"{full}. Repair it, or leave out malformed units (on_error='skip'; --skip-malformed)"
            )
        self.malformed += 1
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(full)

    def admit(self, source: str, target: str, origin: str) -> SegmentPair | None:
        """A pair, unless one of its sides is blank."""
        if source.strip() and target.strip():
            return SegmentPair(source, target, origin)
        self.skip(_EMPTY)
        return None
