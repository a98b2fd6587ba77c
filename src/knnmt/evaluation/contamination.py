"""Evaluation text that stands in a store: scores on it say how well the store remembers, not how well it translates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair


@dataclass(frozen=True, slots=True)
class Contamination:
    """Which segments of an evaluation a store knows, by their numbers.

    sources: those whose source stands in it; pairs: those of them whose target stands with it
    """

    store: str
    sources: frozenset[int]
    pairs: frozenset[int]


def contamination(store: str, entries: Iterable[SegmentPair], segments: Sequence[SegmentPair]) -> Contamination:
    """Look for all segments in one pass over a store's pairs; differences of white space do not count."""
    wanted: dict[str, list[int]] = {}
    for number, segment in enumerate(segments):
        wanted.setdefault(_normalised(segment.source), []).append(number)
    targets = [_normalised(segment.target) for segment in segments]
    sources: set[int] = set()
    pairs: set[int] = set()
    for entry in entries:
        numbers = wanted.get(_normalised(entry.source))
        if numbers is not None:
            target = _normalised(entry.target)
            sources.update(numbers)
            pairs.update(number for number in numbers if targets[number] == target)
    return Contamination(store, frozenset(sources), frozenset(pairs))


def _normalised(text: str) -> str:
    return " ".join(text.split())
