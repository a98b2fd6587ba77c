"""Repeated entries have the same source text, the same beginning of the target, and the same next token.

Their keys are equal up to rounding, so a search for k neighbours would find an arbitrary k of them, and nothing else.
Only the first of them is searched, and it counts as often as the entry is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from knnmt.datastore.arrays import Array
from knnmt.datastore.joining import removed_of, same_beginning
from knnmt.datastore.segment import Segment
from knnmt.datastore.source_hashes import places_of
from knnmt.native.structures import address, made
from knnmt.segments.same_sources import hashes_of

_MAX_CAME = 10_000  # new sentences: from this number on, all sentences are examined
_GOLDEN, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Restated:
    """Repetition of some entries. It says nothing about other entries.

    ids: (n,) int64, ascending; firsts: (n,) int64, the first entry that each one repeats, or itself
    counts: (n,) int32, how often a first entry occurs, with itself; 1 for all others
    """

    ids: Array
    firsts: Array
    counts: Array

    @classmethod
    def none(cls) -> Restated:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))

    def put_into(self, found: Array, ids: Array, known: Array) -> None:
        """For those of `ids` that are here, write `known` (`firsts` or `counts`) into `found`; others stay."""
        if len(self.ids):
            places = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
            mine = self.ids[places] == ids
            found[mine] = known[places[mine]]

    def under(self, other: Restated) -> Restated:
        """Both in one; the other takes precedence."""
        left = ~np.isin(self.ids, other.ids, assume_unique=True)
        ids = np.concatenate([self.ids[left], other.ids])
        order = np.argsort(ids, kind="stable")
        firsts, counts = (
            np.concatenate([self.firsts[left], other.firsts]),
            np.concatenate([self.counts[left], other.counts]),
        )
        return Restated(ids[order], firsts[order], counts[order])

    def only_repeating(self) -> Restated:
        """Without the entries that do not repeat."""
        kept = (self.firsts != self.ids) | (self.counts > 1)
        return Restated(self.ids[kept], self.firsts[kept], self.counts[kept])


@dataclass(frozen=True)
class Repeats:
    """The repeated entries among a store's live entries. It stores only these.

    base: an earlier state; newer: the changes since, which take precedence. So a change costs only what it changes.
    """

    base: Restated
    newer: Restated

    def firsts_of(self, ids: Array) -> Array:
        """For each of some entries the first entry that it repeats, or itself, int64."""
        firsts = np.array(ids, np.int64)
        for each in (self.base, self.newer):
            each.put_into(firsts, ids, each.firsts)
        return firsts

    def counts_of(self, ids: Array) -> Array:
        """How often each of some entries occurs, if it is a first one, with itself; 1 for all others; float32."""
        counts = np.ones(np.shape(ids), np.float32)
        for each in (self.base, self.newer):
            each.put_into(counts, ids, each.counts)
        return counts

    def every_first(self, entries: int) -> Array:
        """(entries,) int64, `firsts_of` for all entries."""
        firsts = np.arange(entries)
        for each in (self.base, self.newer):
            firsts[each.ids] = each.firsts
        return firsts

    def every_count(self, entries: int) -> Array:
        """(entries,) float32, `counts_of` for all entries."""
        counts = np.ones(entries, np.float32)
        for each in (self.base, self.newer):
            counts[each.ids] = each.counts
        return counts

    def searched(self, entries: int) -> Array:
        """(entries,) bool, False for those that repeat an earlier one."""
        searched = np.ones(entries, np.bool_)
        for each in (self.base, self.newer):
            searched[each.ids] = each.firsts == each.ids
        return searched

    @cached_property
    def compiled(self) -> NDArray[np.void]:
        """The repeats as compiled code sees them. The result points into arrays that live as long as this object."""
        both = (self.base, self.newer)
        found = made("Restated", 2, count=[len(each.ids) for each in both])
        found["ids"], found["firsts"] = [address(each.ids) for each in both], [address(each.firsts) for each in both]
        return found


def find_repeats(segments: Sequence[Segment]) -> Repeats | None:
    """Find the repeats in some segments; None if there are none."""
    again = _again(segments)
    if not any(len(each) for each in again):
        return None
    found = [
        _texts_so_far(segment, mine, first)
        for segment, mine, first in zip(segments, again, _first_entries(segments), strict=False)
        if len(mine)
    ]
    restated = _grouped(*(np.concatenate(each) for each in zip(*found, strict=True))).only_repeating()
    return Repeats(restated, Restated.none()) if len(restated.ids) else None


def follow_repeats(
    earlier: Repeats | None,
    before: Sequence[Segment],
    segments: Sequence[Segment],
    max_newer: int = 1 << 16,
) -> Repeats | None:
    """The repeats in some segments, updated from those of an earlier state. The result is that of `find_repeats`.

    It only examines sentences that share the source of an added or removed sentence.
    before: the segments of the earlier state
    max_newer: changed entries before they are merged into the base
    """
    shared = same_beginning(before, segments)
    came = sum(segment.record.sentences for segment in segments) - shared.sentences
    if shared.segments < len(before) or came > _MAX_CAME:
        return find_repeats(segments)
    first = np.cumsum([0, *(segment.record.sentences for segment in segments)])
    gone = np.setdiff1d(_removed(segments), _removed(before), assume_unique=True)
    changed = np.concatenate([gone, np.arange(shared.sentences, first[-1])])
    touched = np.unique(_hashes_at(changed, segments, first))
    ids, live_ids, so_far = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for segment, begin in zip(segments, _first_entries(segments), strict=False):
        sentences = places_of(segment.arrays["source_hashes"], touched)
        if len(sentences):
            numbers, texts = _texts_so_far(segment, sentences, begin)
            live = ~np.isin(segment.arrays["sentences"][numbers - begin], segment.removed)
            ids.append(numbers)
            live_ids.append(numbers[live])
            so_far.append(texts[live])
    every = np.concatenate(ids)
    by_themselves = Restated(every, every, np.ones(len(every), np.int32))
    again = by_themselves.under(_grouped(np.concatenate(live_ids), np.concatenate(so_far)))
    known = Repeats(Restated.none(), Restated.none()) if earlier is None else earlier
    newer = known.newer.under(again)
    newer = Restated(*(each[_needed(known.base, newer)] for each in (newer.ids, newer.firsts, newer.counts)))
    if len(newer.ids) > max(max_newer, len(known.base.ids) // 16):
        base = known.base.under(newer).only_repeating()
        return Repeats(base, Restated.none()) if len(base.ids) else None
    return Repeats(known.base, newer) if len(known.base.ids) + len(newer.ids) else None


def _needed(base: Restated, newer: Restated) -> Array:
    """Which entries must be recorded as changed: those that repeat, and those that repeated before."""
    before = np.isin(newer.ids, base.ids, assume_unique=True)
    needed: Array = (newer.firsts != newer.ids) | (newer.counts > 1) | before
    return needed


def _grouped(ids: Array, so_far: Array) -> Restated:
    """Group live entries, ascending, by the hashes of their texts up to each token."""
    _, firsts, groups, often = np.unique(so_far, return_index=True, return_inverse=True, return_counts=True)
    counts = np.ones(len(ids), np.int32)
    counts[firsts] = often
    return Restated(ids, ids[firsts][groups], counts)


def _first_entries(segments: Sequence[Segment]) -> list[int]:
    firsts: list[int] = np.cumsum([0, *(segment.record.entries for segment in segments)]).tolist()
    return firsts


def _removed(segments: Sequence[Segment]) -> Array:
    """The removed sentences, counted through the segments, ascending."""
    return np.sort(removed_of(segments, [segment.removed for segment in segments]).astype(np.int64))


def _hashes_at(sentences: Array, segments: Sequence[Segment], first: Array) -> Array:
    """The hashes of the sources of sentences that are counted through the segments."""
    of_segment = np.searchsorted(first, sentences, side="right") - 1
    parts = [
        segments[each].arrays["source_hashes"][sentences[of_segment == each] - first[each]]
        for each in np.unique(of_segment).tolist()
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _again(segments: Sequence[Segment]) -> list[Array]:
    """The sentences of each segment that are not removed and have the hash of another such sentence."""
    live = [segment.live_sentences() for segment in segments]
    of_live = [segment.arrays["source_hashes"][kept] for segment, kept in zip(segments, live, strict=True)]
    ordered = np.sort(np.concatenate([np.empty(0, np.int64), *of_live]))
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return [kept[np.isin(mine, several)] for mine, kept in zip(of_live, live, strict=True)]


def _texts_so_far(segment: Segment, sentences: Array, first: int) -> tuple[Array, Array]:
    """The entry ids of some sentences, and for each entry a hash of the source and the target up to its token.

    first: the id of the segment's first entry. The hashes are uint64 and hold within one process.
    """
    owners, positions, begins = segment.owners(), segment.arrays["positions"], segment.offsets("target_offsets")
    sources = hashes_of(segment.source_tokens(), segment.offsets("source_offsets"))
    chosen = np.zeros(segment.record.sentences, np.bool_)
    chosen[sentences] = True
    numbers = np.flatnonzero(chosen[owners])
    owners, positions = owners[numbers], positions[numbers]
    if ((positions < 0) | (begins[owners] + positions >= begins[owners + 1])).any():
        raise segment.damaged("an entry's position lies outside its sentence")
    # A token's term depends on its position, so that the sum over a prefix identifies its tokens and their order.
    places = np.arange(begins[-1]) - np.repeat(begins[:-1], np.diff(begins))
    shares = _mixed(_mixed(places.astype(np.uint64)) + segment.arrays["target_tokens"].astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(shares)])
    so_far = sums[begins[owners] + positions + 1] - sums[begins[owners]]
    return numbers + first, _mixed(so_far + _mixed(sources[owners]))


def _mixed(numbers: Array) -> Array:
    """Mix uint64 numbers, so that every bit depends on every other (splitmix64)."""
    numbers = numbers + _GOLDEN
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    mixed: Array = numbers ^ (numbers >> np.uint64(31))
    return mixed
