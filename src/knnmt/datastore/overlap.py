"""Which text stands in a store already: what is tuned or scored on text that the store holds says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs, divided by whether the store holds their source text; white space is not compared.

    new: those whose source it does not hold; known: the others
    whole: how many of the known have a target that it holds with that source
    """

    new: tuple[SegmentPair, ...]
    known: tuple[SegmentPair, ...]
    whole: int


def overlap(store: Datastore, pairs: Sequence[SegmentPair]) -> Overlap:
    """Compare pairs with every sentence of a store, in one pass over its text."""
    held: dict[str, set[str]] = {}
    asked = {_plain(pair.source) for pair in pairs}
    for pair in store.pairs():
        if (source := _plain(pair.source)) in asked:
            held.setdefault(source, set()).add(_plain(pair.target))
    known = tuple(pair for pair in pairs if _plain(pair.source) in held)
    new = tuple(pair for pair in pairs if _plain(pair.source) not in held)
    return Overlap(new, known, sum(_plain(pair.target) in held[_plain(pair.source)] for pair in known))


def unseen(store: Datastore, pairs: Sequence[SegmentPair]) -> list[SegmentPair]:
    """Those of which a store holds neither the source nor the target; white space is not compared."""
    sources = {_plain(pair.source) for pair in pairs}
    targets = {_plain(pair.target) for pair in pairs}
    for pair in store.pairs():
        sources.discard(_plain(pair.source))
        targets.discard(_plain(pair.target))
    return [pair for pair in pairs if _plain(pair.source) in sources and _plain(pair.target) in targets]


def _plain(text: str) -> str:
    return " ".join(text.split())
