"""Entries that say the same again: those of one source text, one beginning of its target, and one next token.

Their keys are equal up to rounding, so that a search for k neighbours would find some of them by chance, and nothing
else. Only the first of them is searched for, and it counts as often as there are of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import Segment

_GOLDEN, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Repeats:
    """Of the entries of a store that are not removed.

    first_of: (entries,) int64, for every entry the first that says the same
    counts: (entries,) int64, how often each first one is said, itself counted; 1 for all others
    """

    first_of: Array
    counts: Array

    @property
    def searched(self) -> Array:
        """(entries,) bool, False for those that say the same as an earlier one."""
        first: Array = self.first_of == np.arange(len(self.first_of))
        return first


def hashes_of_sources(segment: Segment) -> Array:
    """(sentences,) int64, equal for equal source texts; the numbers hold within one process."""
    texts, offsets = memoryview(segment.arrays["texts"].tobytes()), segment.arrays["text_offsets"].tolist()
    sources = zip(offsets[0:-1:3], offsets[1::3], strict=True)
    return np.fromiter((hash(texts[begin:end]) for begin, end in sources), np.int64, segment.record.sentences)


def find_repeats(segments: Sequence[Segment], hashes: Sequence[Array]) -> Repeats | None:
    """What repeats in some segments, whose sources have these hashes; None where nothing does."""
    again = _again(segments, hashes)
    if not any(each.any() for each in again):
        return None
    first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
    found = [
        _texts_so_far(segment, of_sources, mine)
        for segment, of_sources, mine in zip(segments, hashes, again, strict=True)
    ]
    ids = np.concatenate([numbers + first for (numbers, _), first in zip(found, first_entry, strict=False)])
    _, first, groups, counts = np.unique(
        np.concatenate([so_far for _, so_far in found]), return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == len(ids):
        return None
    repeats = Repeats(np.arange(first_entry[-1]), np.ones(first_entry[-1], np.int64))
    repeats.first_of[ids] = ids[first][groups]
    repeats.counts[ids[first]] = counts
    return repeats


def _again(segments: Sequence[Segment], hashes: Sequence[Array]) -> list[Array]:
    """(sentences,) bool of each segment: those not removed whose source stands in another sentence as well."""
    live = [np.isin(np.arange(len(h)), s.removed, invert=True) for s, h in zip(segments, hashes, strict=True)]
    of_live = np.sort(np.concatenate([np.empty(0, np.int64), *(h[kept] for h, kept in zip(hashes, live, strict=True))]))
    several = np.unique(of_live[1:][of_live[1:] == of_live[:-1]])
    return [np.isin(each, several) & kept for each, kept in zip(hashes, live, strict=True)]


def _texts_so_far(segment: Segment, of_sources: Array, sentences: Array) -> tuple[Array, Array]:
    """The entries of some sentences, by their numbers in the segment, and a hash of source and target up to each token.

    sentences (sentences,) bool
    """
    arrays = segment.arrays
    numbers = np.flatnonzero(sentences[arrays["sentences"]])
    owners, positions = arrays["sentences"][numbers], arrays["positions"][numbers]
    begins = arrays["target_offsets"]
    # A token's share depends on its place, so that the sum over a beginning tells its tokens and their order.
    places = np.arange(begins[-1]) - np.repeat(begins[:-1], np.diff(begins))
    shares = _mixed(_mixed(places.astype(np.uint64)) + arrays["target_tokens"].astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(shares)])
    so_far = sums[begins[owners] + positions + 1] - sums[begins[owners]]
    return numbers, _mixed(so_far + _mixed(of_sources[owners].astype(np.uint64)))


def _mixed(numbers: Array) -> Array:
    """Every bit of uint64 numbers changed by every other (splitmix64)."""
    numbers = numbers + _GOLDEN
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    mixed: Array = numbers ^ (numbers >> np.uint64(31))
    return mixed
