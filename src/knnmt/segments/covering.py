"""Chooses the segments of a memory that cover a source: retrieval by segment, before decoding.

1. The source's tokens, rarest first, propose the sentences that hold them, up to a limit of postings. The sum of a
   sentence is the idf of each proposing token that it holds. The best are ranked as in BM25, which includes length.
2. The choice is greedy. The next sentence has the largest sum of weights of the source's n-grams that it holds (n up to
   4, weight: the sum of the tokens' idf times √n), times (10 + length)^-0.3. The weights of these n-grams are then
   halved.

One sentence stands for all with the same source, so that a repetitive memory does not use up the choice. The cost of a
sentence does not grow with the memory. Compiled code (`native/choose.cpp`) and NumPy make the same choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import Segment
from knnmt.native import library
from knnmt.native.structures import address, made
from knnmt.segments.repeats import Repeats
from knnmt.segments.same_sources import ranges
from knnmt.segments.source_side import SourceSide, SourceStatistics

MAX_POSTINGS = 400  # postings read per chosen sentence; those of the rarest token are always read
MAX_PROPOSED = 1024  # sentences that are ranked with their length
CANDIDATES = 6  # per chosen sentence
MIN_CANDIDATES = 384
ORDERS = 4  # the longest n-grams
_BM25_K, _BM25_B = 1.2, 0.75
_LENGTH_OFFSET, _LENGTH_POWER = 10.0, -0.3
_LEFT = 0.5  # the factor on the weight of an n-gram each time it is covered
_WHOLE = float(1 << 30)  # weights are integers in units of 1 / _WHOLE: their sums are exact and the same everywhere
_STEPS = 512  # levels of the sum by which proposed sentences are distinguished
_FORESEEN = 8.0  # the largest sum of all parts is usually at most this many times the largest sum of one part
_ROUNDED = 1.01  # a step is taken to be this much wider, because sums are rounded


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a source a memory holds, 0 to 1: the share of its n-grams (n up to 4); rare words weigh more.

    covered: the share that the chosen segments hold together; by_one: the share that the best single segment holds
    """

    covered: float
    by_one: float


@dataclass(frozen=True, slots=True)
class Covering:
    """The sentences chosen for some sources.

    sentences: (sources, count) int64, best first, numbered through the store's segments, -1 if there are no more
    covered: (sources,), the share of a source's n-grams, by weight, that the chosen sentences hold
    by_one: (sources,), the largest share that one sentence holds
    """

    sentences: Array
    covered: Array
    by_one: Array

    def coverage(self) -> list[Coverage]:
        """The coverage of each source."""
        return [Coverage(*each) for each in zip(self.covered.tolist(), self.by_one.tolist(), strict=True)]


class SourceIndex(SourceSide):
    """A snapshot of the source side of a store, to choose sentences from. Threads may share it.

    orders, left: constants of the choice, which compiled code has, too. A subclass that changes one, to measure its
        effect, chooses in NumPy.
    """

    orders = ORDERS
    left = _LEFT

    def __init__(
        self,
        segments: Sequence[Segment],
        earlier: SourceIndex | None = None,
        of_more: SourceStatistics | None = None,
    ) -> None:
        super().__init__(segments, earlier, of_more)
        self._compiled_parts = self._compile_parts(earlier)

    def choose(self, sources: Sequence[Sequence[int]], count: int) -> Covering:
        """The sentences that cover each source best, by its token ids without the end token."""
        candidates = self.candidate_count(count)
        usual = (self.orders, self.left) == (ORDERS, _LEFT)
        native = library() if usual else None
        if native is None:
            found = [self._choose(list(source), count, candidates) for source in sources]
            sentences = np.array([each[0] for each in found], np.int64).reshape(len(sources), count)
            covered = np.array([each[1] for each in found], np.float32).reshape(len(sources), 2)
            return Covering(sentences, covered[:, 0], covered[:, 1])
        tokens = np.array([token for source in sources for token in source], np.int32)
        offsets = np.cumsum([0, *map(len, sources)]).astype(np.int64)
        sentences = np.empty((len(sources), count), np.int64)
        covered = np.empty((len(sources), 2), np.float32)
        choosing = made("Choosing", count=count, candidates=candidates)
        choosing["proposed"], choosing["postings"] = max(MAX_PROPOSED, candidates), MAX_POSTINGS * count
        places = (address(array) for array in (tokens, offsets, sentences, covered))
        given = (address(self._compiled), address(choosing), len(sources), torch.get_num_threads())
        sound = native.knnmt_choose(*given, *places)
        if not sound:
            raise self._damaged()
        return Covering(sentences, covered[:, 0], covered[:, 1])

    def candidate_count(self, count: int) -> int:
        """The number of candidates from which `count` sentences are chosen."""
        return max(MIN_CANDIDATES, CANDIDATES * count)

    def searched(self, entries: list[Array], sources: Sequence[Sequence[int]]) -> list[Array]:
        """Of the entries of each source's sentences, those that are searched: all. A subclass may leave some out.

        sources: token ids with the end token
        """
        del sources
        return entries

    def entries_of(self, chosen: Array, repeats: Repeats | None = None) -> list[Array]:
        """For each row of chosen sentences, the ids of their entries and of others with the same sources, (n,) int64.

        The ids are ascending and unique. Sentences of -1 are skipped.
        repeats: says which entry is searched instead of each entry
        """
        if (native := library()) is None:
            return [self._entries_of(mine, repeats) for mine in chosen]
        chosen = np.ascontiguousarray(chosen)
        sizes = np.empty(len(chosen), np.int64)
        of_repeats = None if repeats is None else repeats.compiled
        given = (address(self._compiled), address(self._same.compiled), address(of_repeats))
        of_chosen = (*chosen.shape, torch.get_num_threads(), address(chosen))
        native.knnmt_sentence_entries(*given, *of_chosen, None, address(sizes), None)
        offsets = np.cumsum([0, *sizes])
        ids = np.empty(int(offsets[-1]), np.int64)
        native.knnmt_sentence_entries(*given, *of_chosen, address(offsets), address(sizes), address(ids))
        return [ids[first : first + size] for first, size in zip(offsets.tolist(), sizes.tolist(), strict=False)]

    def _entries_of(self, sentences: Array, repeats: Repeats | None) -> Array:
        """The same for one row, in NumPy."""
        hashes = np.unique(self._same.hashes_of(sentences[sentences >= 0]))
        ids = ranges(*self._stretches(self._same.alike(hashes)))
        return ids if repeats is None else np.unique(repeats.firsts_of(ids))

    def _compile_parts(self, earlier: SourceIndex | None) -> NDArray[np.void]:
        """The parts as compiled code sees them; those that an earlier state has are copied from it."""
        parts, shared = made("SourcePart", len(self._parts)), self._shared
        if earlier is not None:
            parts[:shared] = earlier._compiled_parts[:shared]
        for place, (part, passed_over) in enumerate(zip(self._parts, self._passed_over, strict=True)):
            if earlier is not None and place < shared and passed_over is earlier._passed_over[place]:
                continue
            mine = parts[place]
            for name in ("posting_sentences", "source_tokens", "source_offsets"):
                mine[name] = address(part[name])
            mine["sentences"], mine["tokens"] = len(part["source_offsets"]) - 1, len(part["source_tokens"])
            mine["first_sentence"], mine["first_entry"] = self._first_sentence[place], self._first_entry[place]
            mine["entries"], mine["owners"] = len(part["sentences"]), address(part["sentences"])
            mine["passed_over"] = address(passed_over)
        return parts

    @cached_property
    def _compiled(self) -> NDArray[np.void]:
        """The index as compiled code sees it. It points into arrays that live as long as this object."""
        known = self.statistics
        of_parts = {"part_count": len(self._parts), "parts": address(self._compiled_parts)}
        of_sources = {"vocabulary": self._vocabulary, "sentences": known.sentences, "mean_length": known.mean_length}
        index = made("SourceIndex", postings=address(known.postings), **of_parts, **of_sources)
        for mine, each in zip(index[0]["directories"], (self._base, self._newer), strict=True):
            mine["first"], mine["places"] = address(each.first), address(each.places)
        return index

    # In NumPy ---------------------------------------------------------------------------------------------------------

    def _choose(self, source: list[int], count: int, candidates: int) -> tuple[list[int], tuple[float, float]]:
        """`choose` for one source: numbers of sentences, -1 if there are no more, and the shares that they cover."""
        idf = self.statistics.idf(source)
        proposed = self._propose(idf, max(MAX_PROPOSED, candidates), MAX_POSTINGS * count)[:candidates]
        begins, lengths = self._sources_of(proposed)
        weights, held = self._grams_held(source, idf, proposed, begins, lengths)
        left, norms = weights.copy(), (_LENGTH_OFFSET + lengths) ** _LENGTH_POWER
        gains = held @ left
        total, by_one = max(float(weights.sum()), 1e-9), float(gains.max(initial=0))
        chosen: list[int] = []
        while len(chosen) < min(count, len(proposed)):
            best = int((gains * norms).argmax())
            chosen.append(best)
            grams = np.flatnonzero(held[best])
            lost = left[grams] - np.floor(left[grams] * self.left)
            left[grams] -= lost
            gains -= held[:, grams] @ lost
            gains[chosen] = -1
        by_any = float(weights[left < weights].sum())
        return [*proposed[chosen].tolist(), *[-1] * (count - len(chosen))], (by_any / total, by_one / total)

    def _grams_held(
        self, source: list[int], idf: dict[int, float], proposed: Array, begins: Array, lengths: Array
    ) -> tuple[Array, Array]:
        """The weights of the source's n-grams, (n,), and which sentences hold each, (sentences, n), 1 or 0; float64.

        An n-gram is identified by the number of the n-gram without its last token, and by that token.
        """
        tokens, rows = self._tokens_at(proposed, begins, lengths), np.repeat(np.arange(len(proposed)), lengths)
        ends = np.repeat(np.cumsum(lengths), lengths)
        kinds = self._vocabulary
        own = np.array([token if token in idf else -1 for token in source], np.int64)
        at, own_at = np.arange(len(tokens)), np.arange(len(own))  # the first positions of n-grams that can be extended
        grams, own_grams = np.zeros(len(tokens), np.int64), np.zeros(len(own), np.int64)
        sums = np.zeros(len(own))
        idfs = np.array([idf.get(token, 0.0) for token in source])
        weights, held = [], []
        for n in range(self.orders):
            goes_on = own_at + n < len(own)
            own_at, own_grams = own_at[goes_on], own_grams[goes_on]
            known = own[own_at + n] >= 0
            own_at, own_grams = own_at[known], own_grams[known]
            sums[own_at] += idfs[own_at + n]
            keys, first, own_grams = np.unique(
                own_grams * kinds + own[own_at + n], return_index=True, return_inverse=True
            )
            inside = at + n < ends[at]
            at, grams = at[inside], grams[inside]
            wanted = grams * kinds + tokens[at + n]
            grams = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
            same = keys[grams] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
            at, grams = at[same], grams[same]
            mine = np.zeros((len(proposed), len(keys)))
            mine[rows[at], grams] = 1
            held.append(mine)
            weights.append(np.floor(sums[own_at[first]] * np.sqrt(n + 1.0) * _WHOLE))
        return np.concatenate(weights), np.concatenate(held, axis=1)

    def _propose(self, idf: dict[int, float], most: int, postings: int) -> Array:
        """About `most` sentences that hold the most of the rare tokens, ranked with their lengths."""
        sentences, sums = self._proposed(self.statistics.proposing(idf, postings))
        if not len(sentences):
            return sentences
        steps = (sums * ((_STEPS - 1) / max(float(sums.max()), 1e-30))).astype(np.int64)
        reached = np.cumsum(np.bincount(steps, minlength=_STEPS)[::-1]) >= most
        lowest = _STEPS - 1 - int(reached.argmax()) if reached.any() else 0
        sentences, sums = sentences[steps >= lowest], sums[steps >= lowest]
        ranked = self._ranked(sentences, sums, self.statistics.mean_length)
        return sentences[np.lexsort((sentences, -ranked))]

    def _proposed(self, proposing: Sequence[tuple[int, float]]) -> tuple[Array, Array]:
        """The sentences that hold some of these tokens, and for each the sum of its tokens' weights, float32."""
        numbers, scores = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for token, weight in proposing:
            mine = self._sentences_with(token)
            numbers.append(mine)
            scores.append(np.full(len(mine), weight, np.float32))
        sentences, places = np.unique(np.concatenate(numbers), return_inverse=True)
        return sentences, np.bincount(places, np.concatenate(scores), len(sentences)).astype(np.float32)

    def _ranked(self, sentences: Array, sums: Array, mean_length: float) -> Array:
        """The sums of the sentences, adjusted by length as in BM25."""
        lengths = self._sources_of(sentences)[1].astype(np.float32)
        ranked: Array = sums / (1 + _BM25_K * (1 - _BM25_B + _BM25_B * lengths / np.float32(mean_length)))
        return ranked

    # As a part of a larger store --------------------------------------------------------------------------------------

    def candidates(
        self, proposing: Sequence[tuple[int, float]], mean_length: float, count: int, highest: float
    ) -> tuple[Array, float, float]:
        """Every sentence that a larger store, of which this is a part, could choose among `count` for a source.

        proposing: the larger store's proposing tokens, with their weights; mean_length: its mean length of a source
        highest: the largest known sum of weights of a sentence in the larger store, 0 if unknown

        It also returns the largest sum here, and the largest sum in the larger store up to which no sentence is
        missing. The larger store keeps the sentences whose sums are at most a step below the last of the `most` largest
        sums. That last sum is no lower there than here, and a step is a fraction of the larger store's largest sum.
        Among sentences with equal sums, those ranked best count.
        """
        sentences, sums = self._proposed([each for each in proposing if each[0] < self._vocabulary])
        most = max(MAX_PROPOSED, MIN_CANDIDATES, CANDIDATES * count)
        here = float(sums.max(initial=0))
        if len(sentences) <= most:
            return sentences, here, float("inf")
        last = float(np.partition(sums, len(sums) - most)[len(sums) - most])
        reach = max(_FORESEEN * here, highest)
        possible = np.flatnonzero(sums >= last - reach * _ROUNDED / (_STEPS - 1))
        ranked = self._ranked(sentences[possible], sums[possible], mean_length)
        order = np.lexsort((sentences[possible], -ranked, sums[possible]))
        of_one_sum = np.cumsum(np.concatenate([[True], np.diff(sums[possible][order]) != 0]))
        place = np.arange(len(order)) - np.searchsorted(of_one_sum, of_one_sum)
        kept = possible[order[place < most]]
        return np.sort(sentences[kept]), here, reach
