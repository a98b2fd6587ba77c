"""Divides text by a fixed hash, so that the text for tuning and the reported text are the same on every machine.

The hash depends only on the source text: the same sentence is always on the same side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain


def position(source: str) -> float:
    """The position of a source text by its hash, from 0 to below 1."""
    digest = hashlib.sha256(plain(source).encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)


def divide(pairs: Iterable[SegmentPair], share: float) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """The pairs whose sources hash below `share`, and the others, each in order."""
    parts: tuple[list[SegmentPair], list[SegmentPair]] = ([], [])
    for pair in pairs:
        parts[position(pair.source) >= share].append(pair)
    return parts


def halves(pairs: Iterable[SegmentPair]) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """One half to tune and train on, the other to report. Finer digits of the hash decide, so that a part that
    `divide` took out by the first digits is also halved evenly.
    """
    parts: tuple[list[SegmentPair], list[SegmentPair]] = ([], [])
    for pair in pairs:
        parts[int(position(pair.source) * (1 << 24)) % 2].append(pair)
    return parts


def is_held_out(source: str, share: float) -> bool:
    """Whether a source belongs to the part that `adapt` holds out, about `share` of all.

    This uses digits that `divide` and `halves` do not use. So the same share is held out after those have taken text
    out, and the held-out text is halved evenly.
    """
    return position(source) * (1 << 25) % 1 < share


def spread(pairs: Sequence[SegmentPair], most: int) -> list[SegmentPair]:
    """At most `most` pairs, spread evenly over all."""
    count = min(most, len(pairs))
    return [pairs[place * len(pairs) // count] for place in range(count)]
