"""Counts what happened to every unit of a memory: it was read, left out (and why), or malformed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.errors import MalformedMemoryError

_MAX_PROBLEMS = 20
_MAX_REASONS = 1000
_MAX_REASON_CHARACTERS = 1000
_MAX_TEXT_CHARACTERS = 1 << 16  # in a side, an origin or a context
_EMPTY = "empty source or target"


class UnitError(Exception):
    """A unit violates its format. The reader of the format adds the place and informs the report."""


@dataclass(slots=True)
class ReadingReport:
    """Counters that fill while memories are read.

    `pairs` counts the pairs that were read; `skipped` counts valid units that were left out, by reason; `noted` counts
    things to know about pairs that were taken; `malformed` counts broken units, and `problems` describes the first of
    them. `remedy` says what to do about a malformed unit if reading stops there.
    """

    pairs: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    malformed: int = 0
    remedy: str = "Repair it, or leave out malformed units (on_error='skip'; --skip-malformed)"

    def skip(self, reason: str, count: int = 1) -> None:
        """Count valid units that are left out."""
        self.skipped[_told_apart(reason, self.skipped)] += count

    def note(self, remark: str) -> None:
        """Count something that does not exclude a unit."""
        self.noted[_told_apart(remark, self.noted)] += 1

    def problem(self, place: str, message: str, config: ReadingConfig) -> None:
        """Stop at a malformed unit, or count it, depending on the settings."""
        full = f"{place[:_MAX_REASON_CHARACTERS]}: {message}"
        if config.on_error == "stop":
            raise MalformedMemoryError(f"{full}. {self.remedy}")
        self.malformed += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(full)

    def admit(self, source: str, target: str, origin: str, context: str = "") -> SegmentPair | None:
        """A pair, unless one of its sides is blank or too long for any model."""
        if max(map(len, (source, target, origin, context))) > _MAX_TEXT_CHARACTERS:
            self.skip(f"longer than {_MAX_TEXT_CHARACTERS:,} characters")
        elif source.strip() and target.strip():
            return SegmentPair(source, target, origin, context)
        else:
            self.skip(_EMPTY)
        return None


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun: 1 sentence, 1,234 entries."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def _told_apart(reason: str, counted: Counter[str]) -> str:
    """The reason itself, unless a file has too many different ones: it contains languages and states from the file."""
    reason = reason if len(reason) <= _MAX_REASON_CHARACTERS else f"{reason[:_MAX_REASON_CHARACTERS]}…"
    return reason if reason in counted or len(counted) < _MAX_REASONS else "other reasons"
