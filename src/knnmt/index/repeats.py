"""Entries that say the same again: those of one source text, one beginning of its target, and one next token.

Their keys are equal up to rounding, so that a search for k neighbours would find some of them by chance, and nothing
else. Only the first of them is searched for, and it counts as often as there are of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.datastore.arrays import Array
from knnmt.datastore.joining import Shared, removed_of
from knnmt.datastore.segment import Segment
from knnmt.datastore.source_hashes import places_of
from knnmt.index.growing import Growing

_MANY = 10_000  # sentences that came: from so many on, all are looked at
_GOLDEN, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Repeats:
    """Of the entries of a store that are not removed.

    first_of: (entries,) int64, for every entry the first that says the same
    counts: (entries,) float32, how often each first one is said, itself counted; 1 for all others
    several: how many are said more than once
    """

    first_of: Growing
    counts: Growing
    several: int

    @property
    def searched(self) -> Array:
        """(entries,) bool, False for those that say the same as an earlier one."""
        first: Array = self.first_of.array == np.arange(len(self.first_of.array))
        return first


@dataclass(frozen=True, slots=True)
class Touched:
    """The entries of which something may have changed since an earlier state, those that came among them.

    ids: (n,) int64; searched: (n,) bool, whether each is neither removed nor says what an earlier one says
    """

    ids: Array
    searched: Array


def find_repeats(
    segments: Sequence[Segment], hashes: Sequence[Array], seen: Callable[[SegmentPair], str]
) -> Repeats | None:
    """What repeats in some segments; None where nothing does.

    hashes: (sentences,) of each segment, equal for equal sources; seen: the source of a pair as the model sees it
    """
    again = _again(segments, hashes)
    if not any(len(each) for each in again):
        return None
    first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
    found = [_texts_so_far(segment, mine, seen) for segment, mine in zip(segments, again, strict=True)]
    ids = np.concatenate([numbers + first for (numbers, _), first in zip(found, first_entry, strict=False)])
    first, groups, counts = _groups(np.concatenate([so_far for _, so_far in found]))
    if len(first) == len(ids):
        return None
    first_of, often = np.arange(first_entry[-1]), np.ones(first_entry[-1], np.float32)
    first_of[ids] = ids[first][groups]
    often[ids[first]] = counts
    return Repeats(Growing(first_of), Growing(often), int((counts > 1).sum()))


def follow_repeats(
    earlier: Repeats | None,
    before: Sequence[Segment],
    segments: Sequence[Segment],
    shared: Shared,
    hashes: Sequence[Array],
    seen: Callable[[SegmentPair], str],
) -> tuple[Repeats | None, Touched | None]:
    """What repeats in some segments, from what an earlier state of them repeated: the same as `find_repeats` finds.

    Only sentences that have the source of one that came or went are looked at; what is told of their entries is all
    that changed. Where that is not known, because all were looked at, nothing is told.

    before: the segments of that state; shared: what both begin with
    """
    came = sum(segment.record.sentences for segment in segments) - shared.sentences
    if shared.segments < len(before) or came > _MANY:
        return find_repeats(segments, hashes, seen), None
    first = np.cumsum([0, *(segment.record.sentences for segment in segments)])
    gone = np.setdiff1d(_removed(segments), _removed(before), assume_unique=True)
    changed = np.concatenate([gone, np.arange(shared.sentences, first[-1])])
    touched = np.unique(_hashes_at(changed, hashes, first))
    first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
    all_ids, all_live, so_far = [np.empty(0, np.int64)], [np.empty(0, np.bool_)], [np.empty(0, np.uint64)]
    for segment, mine, begin in zip(segments, hashes, first_entry.tolist(), strict=False):
        sentences = places_of(mine, touched)
        if len(sentences):
            numbers, texts = _texts_so_far(segment, sentences, seen)
            live = ~np.isin(segment.arrays["sentences"][numbers], segment.removed)
            all_ids.append(numbers + begin)
            all_live.append(live)
            so_far.append(texts[live])
    every, live = np.concatenate(all_ids), np.concatenate(all_live)
    ids = every[live]
    firsts, groups, often = _groups(np.concatenate(so_far))
    of_every, counts = every.copy(), np.ones(len(every), np.float32)
    of_every[live] = ids[firsts][groups]
    counts[np.flatnonzero(live)[firsts]] = often
    followed = _followed(earlier, int(first_entry[-1]), every, of_every, counts)
    return followed, Touched(every, live & (of_every == every))


def _followed(earlier: Repeats | None, entries: int, every: Array, of_every: Array, counts: Array) -> Repeats | None:
    """What repeats, once this is known of some entries."""
    several = int((counts > 1).sum())
    if earlier is None:
        if not several:
            return None
        earlier = Repeats(Growing(np.arange(entries)), Growing(np.ones(entries, np.float32)), 0)
    known = len(earlier.first_of.array)
    old = every < known
    several += earlier.several - int((earlier.counts.array[every[old]] > 1).sum())
    if not several:
        return None
    first_of = earlier.first_of.with_changed(every[old], of_every[old]).followed_by(np.arange(known, entries))
    often = earlier.counts.with_changed(every[old], counts[old]).followed_by(np.ones(entries - known, np.float32))
    first_of.array[every[~old]], often.array[every[~old]] = of_every[~old], counts[~old]  # which nobody has seen yet
    return Repeats(first_of, often, several)


def _groups(so_far: Array) -> tuple[Array, Array, Array]:
    """Where each of the different texts is first, which of them each is, and how often there is each."""
    _, first, groups, counts = np.unique(so_far, return_index=True, return_inverse=True, return_counts=True)
    return first, groups, counts


def _removed(segments: Sequence[Segment]) -> Array:
    """The removed sentences, counted through the segments, ascending."""
    return np.sort(removed_of(segments, [segment.removed for segment in segments]).astype(np.int64))


def _hashes_at(sentences: Array, hashes: Sequence[Array], first: Array) -> Array:
    """The hashes of sentences that are counted through the segments."""
    of_segment = np.searchsorted(first, sentences, side="right") - 1
    parts = [hashes[each][sentences[of_segment == each] - first[each]] for each in np.unique(of_segment).tolist()]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _again(segments: Sequence[Segment], hashes: Sequence[Array]) -> list[Array]:
    """The sentences of each segment that are not removed and have the hash of another such sentence."""
    live = [segment.live_sentences() for segment in segments]
    of_live = [mine[kept] for mine, kept in zip(hashes, live, strict=True)]
    ordered = np.sort(np.concatenate([np.empty(0, np.int64), *of_live]))
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return [kept[np.isin(mine, several)] for mine, kept in zip(of_live, live, strict=True)]


def _texts_so_far(segment: Segment, sentences: Array, seen: Callable[[SegmentPair], str]) -> tuple[Array, Array]:
    """The entries of some sentences, by their numbers in the segment, and a hash of source and target up to each token.

    The hashes are uint64 and hold within one process.
    """
    owners, positions, begins = segment.owners(), segment.arrays["positions"], segment.offsets("target_offsets")
    sources = np.zeros(segment.record.sentences, np.int64)
    for sentence in sentences.tolist():
        sources[sentence] = hash(plain(seen(segment.pair(sentence))))
    chosen = np.zeros(segment.record.sentences, np.bool_)
    chosen[sentences] = True
    numbers = np.flatnonzero(chosen[owners])
    owners, positions = owners[numbers], positions[numbers]
    if ((positions < 0) | (begins[owners] + positions >= begins[owners + 1])).any():
        raise segment.damaged("an entry's position lies outside its sentence")
    # A token's share depends on its place, so that the sum over a beginning tells its tokens and their order.
    places = np.arange(begins[-1]) - np.repeat(begins[:-1], np.diff(begins))
    shares = _mixed(_mixed(places.astype(np.uint64)) + segment.arrays["target_tokens"].astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(shares)])
    so_far = sums[begins[owners] + positions + 1] - sums[begins[owners]]
    return numbers, _mixed(so_far + _mixed(sources[owners].astype(np.uint64)))


def _mixed(numbers: Array) -> Array:
    """Every bit of uint64 numbers changed by every other (splitmix64)."""
    numbers = numbers + _GOLDEN
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    mixed: Array = numbers ^ (numbers >> np.uint64(31))
    return mixed
