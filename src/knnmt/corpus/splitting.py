"""Dividing text by a fixed hash, so that what tunes and what is reported are the same on every machine and never mix.

The hash is of the source text alone: the same sentence falls on the same side wherever it stands, however often.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from knnmt.corpus.pairs import SegmentPair


def position(source: str) -> float:
    """Where a source text falls, from 0 to below 1."""
    digest = hashlib.sha256(" ".join(source.split()).encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)


def divide(pairs: Iterable[SegmentPair], share: float) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """Pairs whose sources fall below `share`, and the others; each in their order."""
    parts: tuple[list[SegmentPair], list[SegmentPair]] = ([], [])
    for pair in pairs:
        parts[position(pair.source) >= share].append(pair)
    return parts


def halves(pairs: Iterable[SegmentPair]) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """One half to tune and train on, the other to report. Finer digits of the hash decide, so that a part that
    `divide` took out by its first digits is halved evenly too.
    """
    parts: tuple[list[SegmentPair], list[SegmentPair]] = ([], [])
    for pair in pairs:
        parts[int(position(pair.source) * (1 << 24)) % 2].append(pair)
    return parts
