"""The unit of a translation memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """A source segment with its translation, and where both come from: the file and the unit in it.

    context: what the format says of where the text is used (msgctxt, a key, neighbours), empty where it says nothing
    """

    source: str
    target: str
    origin: str
    context: str = ""
