"""Corrections of a store: pairs that replace the store's pairs with the same source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.datastore.building import EntryProgress
from knnmt.datastore.changing import AmongSources
from knnmt.datastore.store import Change, Datastore
from knnmt.engine.base import Engine, State
from knnmt.errors import InputError
from knnmt.progress import ignore


@dataclass(frozen=True, slots=True)
class Replacement:
    """The units of one source, before and after a correction that changed them."""

    before: tuple[SegmentPair, ...]
    after: tuple[SegmentPair, ...]

    @property
    def source(self) -> str:
        """The source, as sources are compared."""
        return plain(self.after[0].source)


@dataclass(frozen=True, slots=True)
class Correction:
    """The result of corrections.

    unchanged: pairs that the store already held
    new: pairs whose source it did not hold
    replacements: one for each source that was changed
    """

    change: Change
    unchanged: int
    new: list[SegmentPair]
    replacements: list[Replacement]


def correct(
    store: Datastore,
    pairs: Iterable[SegmentPair],
    engine: Engine[State],
    add_new: bool = True,
    progress: EntryProgress = ignore,
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
    added = [*better, *(new if add_new else [])]
    replacements = _replacements(store, targets, added)
    change = store.replace(AmongSources(targets, is_wrong), added, engine, progress)
    return Correction(change, len(known) - len(better), new, replacements)


def undo(store: Datastore, done: Replacement, engine: Engine[State]) -> Change | None:
    """Give a source the units back that it had before a correction, in one publication.

    None: the store no longer holds what the correction left, and nothing was changed
    """
    is_source = AmongSources([done.source], lambda pair: plain(pair.source) == done.source)
    now = {pair.target for pair in store.chosen(is_source)}
    before = {pair.target for pair in done.before}
    if now != {pair.target for pair in done.after}:
        return None
    wrong = AmongSources([done.source], lambda pair: is_source(pair) and pair.target not in before)
    return store.replace(wrong, [pair for pair in done.before if pair.target not in now], engine)


def _replacements(
    store: Datastore, targets: Mapping[str, Collection[str]], added: Sequence[SegmentPair]
) -> list[Replacement]:
    """What becomes of the units of each source that has other targets now. targets: the right ones, by source"""
    before: defaultdict[str, list[SegmentPair]] = defaultdict(list)
    for pair in store.chosen(AmongSources(targets, lambda pair: plain(pair.source) in targets)):
        before[plain(pair.source)].append(pair)
    after = {source: [pair for pair in before[source] if pair.target in right] for source, right in targets.items()}
    for pair in added:
        after[plain(pair.source)].append(pair)
    return [
        Replacement(tuple(before[source]), tuple(pairs)) for source, pairs in after.items() if pairs != before[source]
    ]
