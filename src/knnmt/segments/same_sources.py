"""Finds the sentences of a store that have the same source, by hashes of the source tokens.

Older sentences are in one list sorted by hash, newer ones in another, small list. An addition sorts only the small one
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from knnmt.datastore.arrays import Array
from knnmt.native.structures import address, made

_FACTOR = 0x9E3779B97F4A7C15  # odd, with about as many ones as zeros


@dataclass(frozen=True, slots=True)
class HashOrder:
    """Consecutive sentences, sorted by the hashes of their sources.

    first: the number of the first sentence
    hashes: (sentences,) uint64, in the order of the sentences; ordered: the same, ascending
    sentences: (sentences,) int64, the sentence of each element of `ordered`, ascending for equal hashes
    """

    first: int
    hashes: Array
    ordered: Array
    sentences: Array

    @classmethod
    def of(cls, hashes: Sequence[Array], first: int) -> HashOrder:
        every = np.concatenate([np.empty(0, np.uint64), *hashes])
        order = np.argsort(every, kind="stable")
        return cls(first, every, every[order], order + first)

    def __len__(self) -> int:
        return len(self.hashes)

    def alike(self, hashes: Array) -> tuple[Array, Array]:
        """The numbers of the sentences with these hashes, and the index of each one's hash."""
        begin, end = (np.searchsorted(self.ordered, hashes, side=side) for side in ("left", "right"))
        return self.sentences[ranges(begin, end - begin)], np.repeat(np.arange(len(hashes)), end - begin)


class SameSources:
    """All sentences in a snapshot of a store.

    base, newer: the sentences up to some number, and the sentences from there on
    removed: (n,) int64, the numbers of the removed sentences, ascending
    """

    def __init__(self, base: HashOrder, newer: HashOrder, removed: Array) -> None:
        self.base, self.newer, self.removed = base, newer, removed

    def hashes_of(self, sentences: Array) -> Array:
        """(n,) uint64, the hashes of sentences by their numbers."""
        found = np.empty(len(sentences), np.uint64)
        later = sentences >= self.newer.first
        found[~later] = self.base.hashes[sentences[~later]]
        found[later] = self.newer.hashes[sentences[later] - self.newer.first]
        return found

    def alike(self, hashes: Array) -> Array:
        """The numbers of the live sentences that have one of these hashes, ascending."""
        numbers = np.concatenate([order.alike(hashes)[0] for order in (self.base, self.newer)])
        return np.unique(numbers[~self._is_removed(numbers)])

    def passed_over(self, hashes: Array | None = None) -> tuple[Array, Array]:
        """The sentences with these (unique) hashes, and whether each is skipped: removed, or another stands for it.

        The first live sentence stands for all with the same source. Without hashes, it returns all of the base.
        """
        if hashes is None:
            numbers = self.base.sentences
            source = np.cumsum(np.concatenate([[0], self.base.ordered[1:] != self.base.ordered[:-1]]))[: len(numbers)]
        else:
            found = [order.alike(hashes) for order in (self.base, self.newer)]
            numbers, source = (np.concatenate(each) for each in zip(*found, strict=True))
            order = np.argsort(source, kind="stable")  # sentences of the base come first
            numbers, source = numbers[order], source[order]
        live = np.flatnonzero(~self._is_removed(numbers))
        firsts = live[np.concatenate([[True], source[live][1:] != source[live][:-1]])[: len(live)]]
        passed_over = np.ones(len(numbers), np.bool_)
        passed_over[firsts] = False
        return numbers, passed_over

    def _is_removed(self, numbers: Array) -> Array:
        if not len(self.removed):
            return np.zeros(len(numbers), np.bool_)
        places = np.searchsorted(self.removed, numbers).clip(max=len(self.removed) - 1)
        removed: Array = self.removed[places] == numbers
        return removed

    @cached_property
    def compiled(self) -> NDArray[np.void]:
        """The lists as compiled code sees them. The result points into arrays that live as long as this object."""
        found = made("SameSources", removed_count=len(self.removed), removed=address(self.removed))
        for mine, each in zip(found[0]["orders"], (self.base, self.newer), strict=True):
            mine["first"], mine["count"] = each.first, len(each)
            for name, array in (("ordered", each.ordered), ("sentences", each.sentences), ("hashes", each.hashes)):
                mine[name] = address(array)
        return found


def hashes_of(tokens: Array, offsets: Array) -> Array:
    """(sentences,) uint64, equal for sentences with equal tokens: sums of tokens times powers, in 64 bits."""
    lengths = np.diff(offsets)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _FACTOR, np.uint64))
    products = (tokens.astype(np.uint64) + np.uint64(1)) * powers[ranges(np.zeros(len(lengths), np.int64), lengths)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)])
    hashes: Array = sums[offsets[1:]] - sums[offsets[:-1]]
    return hashes


def ranges(first: Array, sizes: Array) -> Array:
    """For each `first`, the integers from it on, as many as its size; one range after the other."""
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    numbers: Array = np.repeat(first, sizes) + within
    return numbers
