"""The unit of a translation memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentPair:
    """A source segment with its translation and origin: the file and the unit in it.

    context: where the text is used, if the format states it (msgctxt, a key, neighbours); otherwise empty
    """

    source: str
    target: str
    origin: str
    context: str = ""
