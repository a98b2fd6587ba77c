"""Short made-up pairs for tests of the datastore."""

from __future__ import annotations

from pathlib import Path

from knnmt.corpus.pairs import SegmentPair


def some_pairs(count: int, file: str = "own.tsv", start: int = 0) -> list[SegmentPair]:
    """Pairs of different lengths; the same numbers give the same pairs."""
    numbers = range(start, start + count)
    return [SegmentPair(f"Satz {n} {'ja ' * (n % 4)}", f"line {n}{' yes' * (n % 5)}", f"{file}#{n}") for n in numbers]


def development_file(path: Path, count: int) -> Path:
    """A file of so many pairs, and of three that a store of `some_pairs` holds."""
    pairs = [*some_pairs(count, start=200), *some_pairs(3)]
    path.write_text("".join(f"{each.source}\t{each.target}\n" for each in pairs), encoding="utf-8")
    return path
