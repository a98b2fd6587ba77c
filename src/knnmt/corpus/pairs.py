"""The unit of a translation memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """A source segment with its translation, and where both come from: the file and the unit in it."""

    source: str
    target: str
    origin: str
