"""Short made-up pairs for tests of the datastore."""

from __future__ import annotations

from knnmt.corpus.pairs import SegmentPair


def some_pairs(count: int, file: str = "own.tsv", start: int = 0) -> list[SegmentPair]:
    """Pairs of different lengths; the same numbers give the same pairs."""
    numbers = range(start, start + count)
    return [SegmentPair(f"Satz {n} {'ja ' * (n % 4)}", f"line {n}{' yes' * (n % 5)}", f"{file}#{n}") for n in numbers]
