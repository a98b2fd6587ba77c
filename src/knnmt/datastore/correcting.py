"""Corrections of a store: pairs that replace the store's pairs with the same source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.datastore.building import EntryProgress, no_progress
from knnmt.datastore.changing import AmongSources
from knnmt.datastore.store import Change, Datastore
from knnmt.engine.base import Engine, State
from knnmt.errors import InputError


@dataclass(frozen=True, slots=True)
class Correction:
    """The result of corrections.

    unchanged: pairs that the store already held
    new: pairs whose source it did not hold
    """

    change: Change
    unchanged: int
    new: list[SegmentPair]


def correct(
    store: Datastore,
    pairs: Iterable[SegmentPair],
    engine: Engine[State],
    add_new: bool = True,
    progress: EntryProgress = no_progress,
) -> Correction:
    """Remove the store's pairs with the sources of `pairs` and other targets, and add the pairs, in one publication.

    Sources are the same if they differ at most in white space. If a source has several targets in `pairs`, all of them
    are added. Units that are already right stay unchanged.

    add_new: also add pairs whose source the store does not hold
    """
    corrections = list({(plain(pair.source), pair.target): pair for pair in pairs}.values())
    if not corrections:
        raise InputError("expected pairs that replace others, found none")
    targets: defaultdict[str, set[str]] = defaultdict(set)
    for pair in corrections:
        targets[plain(pair.source)].add(pair.target)
    held: defaultdict[str, set[str]] = defaultdict(set)
    for pair in store.pairs_among(targets):
        if (source := plain(pair.source)) in targets:
            held[source].add(pair.target)

    def is_wrong(pair: SegmentPair) -> bool:
        right = targets.get(plain(pair.source))
        return right is not None and pair.target not in right

    new = [pair for pair in corrections if plain(pair.source) not in held]
    known = [pair for pair in corrections if plain(pair.source) in held]
    better = [pair for pair in known if pair.target not in held[plain(pair.source)]]
    wrong = AmongSources(targets, is_wrong)
    change = store.replace(wrong, [*better, *(new if add_new else [])], engine, progress)
    return Correction(change, len(known) - len(better), new)
