"""Finds text that a store already holds: tuning or scoring on such text means nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.datastore.store import Datastore


@dataclass(frozen=True, slots=True)
class Known:
    """Which of some pairs occur among others, by their numbers; compared in the form of `plain`.

    sources: pairs whose source occurs; pairs: those whose target also occurs with this source
    """

    sources: frozenset[int]
    pairs: frozenset[int]


def known(asked: Sequence[SegmentPair], held: Iterable[SegmentPair]) -> Known:
    """Look for all asked pairs in one pass over the held ones."""
    numbers_of: dict[str, list[int]] = {}
    for number, pair in enumerate(asked):
        numbers_of.setdefault(plain(for_model(pair).source), []).append(number)
    targets = [plain(for_model(pair).target) for pair in asked]
    sources: set[int] = set()
    pairs: set[int] = set()
    for pair in map(for_model, held):
        if numbers := numbers_of.get(plain(pair.source)):
            target = plain(pair.target)
            sources.update(numbers)
            pairs.update(number for number in numbers if targets[number] == target)
    return Known(frozenset(sources), frozenset(pairs))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs, divided by whether a store holds their source text.

    new: pairs whose source it does not hold; known: the others
    whole: how many of the known pairs have a target that it holds with that source
    """

    new: tuple[SegmentPair, ...]
    known: tuple[SegmentPair, ...]
    whole: int


def overlap(held: Datastore | Iterable[SegmentPair], pairs: Sequence[SegmentPair]) -> Overlap:
    """Compare pairs with every sentence of a store, or with other pairs."""
    found = known(pairs, held.pairs() if isinstance(held, Datastore) else held)
    new = tuple(pair for number, pair in enumerate(pairs) if number not in found.sources)
    return Overlap(new, tuple(pairs[number] for number in sorted(found.sources)), len(found.pairs))


def unseen(store: Datastore, pairs: Sequence[SegmentPair]) -> list[SegmentPair]:
    """The pairs of which a store holds neither the source nor the target, compared by `plain`."""
    seen = [for_model(pair) for pair in pairs]
    sources = {plain(pair.source) for pair in seen}
    targets = {plain(pair.target) for pair in seen}
    for pair in map(for_model, store.pairs()):
        sources.discard(plain(pair.source))
        targets.discard(plain(pair.target))
    return [
        pair
        for pair, shown in zip(pairs, seen, strict=True)
        if plain(shown.source) in sources and plain(shown.target) in targets
    ]
