"""Choosing the segments of a memory that cover a source: retrieval by segment, before decoding.

1. The source's tokens, rarest first, propose the sentences that hold them, as far as a limit of postings goes. A
   sentence counts the idf of each proposing token that it holds. The best are ranked as BM25 does, by length too.
2. Of the best, one after the other is chosen: the one with the largest sum of the weights of the source's n-grams (n up
   to 4, weight: the sum of its tokens' idf times √n) that it holds, times (10 + length)^-0.3. The weights of what it
   holds are halved.

Of sentences with the same source one stands for all, so that a memory that repeats itself does not use up the choice.
What a sentence costs does not grow with the memory. Compiled code (`native/choose.cpp`) and NumPy choose alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

import numpy as np
import torch

from knnmt.datastore.arrays import Array
from knnmt.datastore.joining import MAX_JOINED_ENTRIES
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import posting_arrays
from knnmt.datastore.segment import MAX_TOKENS, Segment, ascending
from knnmt.errors import DatastoreDamagedError
from knnmt.index.repeats import Repeats
from knnmt.index.same_sources import HashOrder, SameSources, hashes_of, ranges
from knnmt.native import library

POSTINGS = 400  # read for each sentence that is chosen; the rarest token's are read in any case
MAX_PROPOSED = 1024  # sentences that are ranked by length, too
CANDIDATES = 6  # for each sentence that is chosen
MIN_CANDIDATES = 384
ORDERS = 4  # of n-grams
_BM25_K, _BM25_B = 1.2, 0.75
_LENGTH_OFFSET, _LENGTH_POWER = 10.0, -0.3
_LEFT = 0.5  # of the weight of what is covered once more
_WHOLE = float(1 << 30)  # weights are whole numbers of parts of 1: their sums are exact, and so the same everywhere
_TOKENS = 4096  # vocabularies are counted in: a new token seldom makes one larger
_DAMAGED = "its postings name sentences that it does not have; `knnmt verify` says all that is wrong with it"
_NEWER_TOKENS = 1 << 20  # that are put in order at each addition; more become part of what is there for long
_STEPS = 512  # of height that proposed sentences are told apart by
_FORESEEN = 8.0  # times the largest sum of a part, that the largest of all parts has at most, as a rule
_ROUNDED = 1.01  # steps that are taken for one, because sums are rounded

_Tokenized = Callable[[Segment], dict[str, Array]]


class _Part(ctypes.Structure):
    """As in choose.cpp, and so the others."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("sentences", "first_sentence", "tokens")),
        *((name, ctypes.c_void_p) for name in ("posting_sentences", "source_tokens", "source_offsets", "passed_over")),
        *((name, ctypes.c_int64) for name in ("entries", "first_entry")),
        ("owners", ctypes.c_void_p),
    )


class _Directory(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("places", ctypes.c_void_p))


class _Index(ctypes.Structure):
    _fields_ = (
        ("vocabulary", ctypes.c_int64),
        ("sentences", ctypes.c_int64),
        ("mean_length", ctypes.c_float),
        ("part_count", ctypes.c_int32),
        ("parts", ctypes.c_void_p),
        ("directories", _Directory * 2),
        ("postings", ctypes.c_void_p),
    )


class _Choosing(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("count", "candidates", "proposed")),
        ("postings", ctypes.c_int64),
    )


def _at(array: Array | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a source a memory holds, 0 to 1: the part of its n-grams (n up to 4), where rare words weigh more.

    covered: what the chosen segments hold together; by_one: what the best single segment holds
    """

    covered: float
    by_one: float


@dataclass(frozen=True, slots=True)
class Covering:
    """What was chosen for some sources.

    sentences: (sources, count) int64, best first, numbered through the store's segments, -1 where there are no more
    covered: (sources,), the part of a source's n-grams, by weight, that the chosen sentences hold
    by_one: (sources,), the largest part that one sentence holds
    """

    sentences: Array
    covered: Array
    by_one: Array

    def coverage(self) -> list[Coverage]:
        """Of each source."""
        return [Coverage(*each) for each in zip(self.covered.tolist(), self.by_one.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """How often tokens occur in the sources of a store, or of several together.

    sentences: that there are; postings: (vocabulary,) int64, how many each token has
    """

    sentences: int
    postings: Array

    @classmethod
    def together(cls, several: Sequence[SourceStatistics]) -> SourceStatistics:
        """Of several stores as if they were one."""
        postings = np.zeros(max((len(each.postings) for each in several), default=0), np.int64)
        for each in several:
            postings[: len(each.postings)] += each.postings
        return cls(sum(each.sentences for each in several), postings)

    @property
    def mean_length(self) -> float:
        """Of a source, in tokens."""
        return max(1.0, float(self.postings.sum()) / max(1, self.sentences))

    def idf(self, source: Sequence[int]) -> dict[int, float]:
        """The weight of each token of a source: the rarer, the more."""
        held = {token: float(self.postings[token]) for token in source if 0 <= token < len(self.postings)}
        return {
            token: float(np.log1p((max(self.sentences - count, 0.0) + 0.5) / (count + 0.5)))
            for token, count in held.items()
        }

    def proposing(self, idf: Mapping[int, float], most: int) -> list[tuple[int, float]]:
        """The tokens that propose sentences, rarest first, with their weights: as far as so many postings go."""
        chosen: list[tuple[int, float]] = []
        read = 0
        for token in sorted(idf, key=lambda token: (self.postings[token], token)):
            if read and read + self.postings[token] > most:
                break
            read += int(self.postings[token])
            chosen.append((token, idf[token]))
        return chosen


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the postings of each token are, in some parts.

    first: (vocabulary + 1,) int64, where the places of each token begin
    places: (places, 3) int32, a part, and from where to where in its postings
    postings: (vocabulary,) int64, how many each token has
    """

    first: Array
    places: Array
    postings: Array

    @classmethod
    def of(cls, parts: Sequence[dict[str, Array]], first_part: int, vocabulary: int) -> _Places:
        empty = [np.empty((0, 4), np.int64)]
        rows = np.concatenate(empty + [_places(part, number) for number, part in enumerate(parts, first_part)])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        postings = np.bincount(rows[:, 0], rows[:, 3] - rows[:, 2], vocabulary).astype(np.int64)
        first = np.searchsorted(rows[:, 0], np.arange(vocabulary + 1))
        return cls(first, np.ascontiguousarray(rows[:, 1:], np.int32), postings)


def _places(part: dict[str, Array], number: int) -> Array:
    """(distinct tokens, 4): token, part, begin and end of its postings."""
    tokens, offsets = part["posting_tokens"], part["posting_offsets"]
    return np.stack([tokens, np.full(len(tokens), number), offsets[:-1], offsets[1:]], axis=1).astype(np.int64)


class SourceIndex:
    """The source side of a store as it was at one time. Threads may share it.

    earlier: of an earlier state; what both have in common is not put in order again
    tokenized: gives the source tokens and postings of a segment that lacks them
    of_more: the statistics of a larger store that the segments are a part of; by default their own
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        earlier: SourceIndex | None = None,
        tokenized: _Tokenized | None = None,
        of_more: SourceStatistics | None = None,
    ) -> None:
        shared = 0 if earlier is None else earlier._in_common(segments)
        self._segments = list(segments)
        self._parts = self._parts_of(segments, earlier, shared, tokenized)
        largest = max((int(part["posting_tokens"].max(initial=0)) for part in self._parts[shared:]), default=0)
        needed = -(-(largest + 1) // _TOKENS) * _TOKENS
        known = (earlier._vocabulary if earlier else 0, len(of_more.postings) if of_more else 0)
        self._vocabulary: int = max(needed, *known)
        self._place = segments[0].path.parent.parent if segments else None
        self._first_sentence = np.cumsum([0, *(segment.record.sentences for segment in segments)])
        self._first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
        self.sentences = int(self._first_sentence[-1])
        count = len(self._parts)
        if earlier is not None and self._goes_on(earlier, shared):
            base_count, base, ordered = earlier._base_count, earlier._base, earlier._same.base
        else:
            base_count = self._long_there()
            base, ordered = self._placed(0, base_count), self._ordered(0, base_count)
        self._base_count: int = base_count
        self._base: _Places = base
        self._newer = self._placed(self._base_count, count)
        own = SourceStatistics(self.sentences, self._base.postings + self._newer.postings)
        self.statistics = own if of_more is None else SourceStatistics.together([of_more, _none(self._vocabulary)])
        self._same: SameSources = SameSources(ordered, self._ordered(self._base_count, count), self._removed())
        self._passed_over = self._masks(earlier, shared)
        self._compiled_parts = self._compile_parts(earlier, shared)

    def _in_common(self, segments: Sequence[Segment]) -> int:
        """How many of the first segments are the same here, whatever was removed from them."""
        pairs = zip(self._segments, segments, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1] or _name(pair[0]) == _name(pair[1]), pairs))

    @staticmethod
    def _parts_of(
        segments: Sequence[Segment], earlier: SourceIndex | None, shared: int, tokenized: _Tokenized | None
    ) -> list[dict[str, Array]]:
        if earlier is None:
            return [_sound_arrays(segment, tokenized) for segment in segments]
        others = zip(map(_name, earlier._segments[shared:]), earlier._parts[shared:], strict=True)
        known = dict(others)
        newer = [known.get(_name(segment)) or _sound_arrays(segment, tokenized) for segment in segments[shared:]]
        return [*earlier._parts[:shared], *newer]

    def _goes_on(self, earlier: SourceIndex, shared: int) -> bool:
        """Whether this state begins with what an earlier one had put in order, and has not much more."""
        if earlier._vocabulary != self._vocabulary or shared < earlier._base_count or not earlier._base_count:
            return False
        newer = sum(len(part["source_tokens"]) for part in self._parts[earlier._base_count :])
        return bool(newer <= max(_NEWER_TOKENS, int(earlier._base.postings.sum()) // 16))

    def _long_there(self) -> int:
        """How many of the first segments are put in order for long: the last ones may soon be joined with additions."""
        count = len(self._segments)
        while count and self._first_entry[-1] - self._first_entry[count - 1] <= MAX_JOINED_ENTRIES:
            count -= 1
        return count

    def _placed(self, first: int, last: int) -> _Places:
        return _Places.of(self._parts[first:last], first, self._vocabulary)

    def _ordered(self, first: int, last: int) -> HashOrder:
        return HashOrder.of([part["hashes"] for part in self._parts[first:last]], int(self._first_sentence[first]))

    def _removed(self) -> Array:
        """The numbers of all removed sentences, (n,) int64, ascending."""
        firsts = zip(self._first_sentence.tolist(), self._segments, strict=False)
        gone = [first + segment.gone_sentences().astype(np.int64) for first, segment in firsts if len(segment.removed)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *gone]))

    def _masks(self, earlier: SourceIndex | None, shared: int) -> list[Array | None]:
        """For each part (sentences,) uint8, 1 for those that are not to be chosen, or None where all may be."""
        if earlier is None:
            masks: list[Array | None] = [None] * len(self._parts)
            self._mark(masks, *self._same.passed_over())
            hashes = self._same.newer.hashes
        else:
            masks = [*earlier._passed_over[:shared], *[None] * (len(self._parts) - shared)]
            hashes = self._changed(earlier, shared)
        self._mark(masks, *self._same.passed_over(np.unique(hashes)))
        return masks

    def _changed(self, earlier: SourceIndex, shared: int) -> Array:
        """The hashes of the sources of which a sentence came or was removed since an earlier state.

        Those that went with the last segments stood for none of the first: the first sentence stands for the others.
        """
        found = [part["hashes"] for part in self._parts[shared:]]
        for part, then, now in zip(self._parts[:shared], earlier._segments, self._segments, strict=False):
            if then is not now:
                found.append(part["hashes"][np.setxor1d(then.gone_sentences(), now.gone_sentences())])
        return np.concatenate([np.empty(0, np.uint64), *found])

    def _mark(self, masks: list[Array | None], numbers: Array, passed_over: Array) -> None:
        """Say of some sentences whether they are passed over; masks that another index may have stay as they are."""
        order = np.argsort(numbers, kind="stable")
        numbers, passed_over = numbers[order], passed_over[order]
        cuts = np.searchsorted(numbers, self._first_sentence)
        for place in np.flatnonzero(np.diff(cuts)).tolist():
            mine, mask = slice(cuts[place], cuts[place + 1]), masks[place]
            sentences = len(self._parts[place]["source_offsets"]) - 1
            mask = np.zeros(sentences, np.uint8) if mask is None else mask.copy()
            mask[numbers[mine] - self._first_sentence[place]] = passed_over[mine]
            masks[place] = mask if mask.any() else None

    def source_of(self, segment: int, sentence: int) -> list[int]:
        """The source tokens of a sentence, by the number of its segment and its own there."""
        return self._tokens_of(int(self._first_sentence[segment]) + sentence)

    def choose(self, sources: Sequence[Sequence[int]], count: int) -> Covering:
        """The sentences that cover each source best, by its token ids without the end token."""
        candidates = max(MIN_CANDIDATES, CANDIDATES * count)
        native = library()
        if native is None:
            found = [self._choose(list(source), count, candidates) for source in sources]
            sentences = np.array([each[0] for each in found], np.int64).reshape(len(sources), count)
            covered = np.array([each[1] for each in found], np.float32).reshape(len(sources), 2)
            return Covering(sentences, covered[:, 0], covered[:, 1])
        tokens = np.array([token for source in sources for token in source], np.int32)
        offsets = np.cumsum([0, *map(len, sources)]).astype(np.int64)
        sentences = np.empty((len(sources), count), np.int64)
        covered = np.empty((len(sources), 2), np.float32)
        choosing = _Choosing(count, candidates, max(MAX_PROPOSED, candidates), POSTINGS * count)
        places = (_at(array) for array in (tokens, offsets, sentences, covered))
        sound = native.knnmt_choose(
            ctypes.byref(self._compiled), ctypes.byref(choosing), len(sources), torch.get_num_threads(), *places
        )
        if not sound:
            raise DatastoreDamagedError(f"{self._place}: {_DAMAGED}")
        return Covering(sentences, covered[:, 0], covered[:, 1])

    def entries_of(self, chosen: Array, repeats: Repeats | None = None) -> list[Array]:
        """For each row of chosen sentences, the ids of their entries and of those with the same sources, (n,) int64.

        They are ascending, each once. Sentences of -1 are passed over.
        repeats: says which entry is searched for in the place of each
        """
        if (native := library()) is None:
            return [self._entries_of(mine, repeats) for mine in chosen]
        chosen = np.ascontiguousarray(chosen)
        sizes = np.empty(len(chosen), np.int64)
        restated = None if repeats is None else ctypes.byref(repeats.compiled)
        given = (ctypes.byref(self._compiled), ctypes.byref(self._same.compiled), restated)
        of_chosen = (*chosen.shape, torch.get_num_threads(), _at(chosen))
        native.knnmt_own_entries(*given, *of_chosen, None, _at(sizes), None)
        offsets = np.cumsum([0, *sizes])
        ids = np.empty(int(offsets[-1]), np.int64)
        native.knnmt_own_entries(*given, *of_chosen, _at(offsets), _at(sizes), _at(ids))
        return [ids[first : first + size] for first, size in zip(offsets.tolist(), sizes.tolist(), strict=False)]

    def _entries_of(self, sentences: Array, repeats: Repeats | None) -> Array:
        """The same for one row, in NumPy."""
        hashes = np.unique(self._same.hashes_of(sentences[sentences >= 0]))
        ids = ranges(*self._stretches(self._same.alike(hashes)))
        return ids if repeats is None else np.unique(repeats.firsts_of(ids))

    def _stretches(self, sentences: Array) -> tuple[Array, Array]:
        """The first entry of each sentence, and how many it has."""
        first, last = np.empty(len(sentences), np.int64), np.empty(len(sentences), np.int64)
        for part, mine in self._by_part(sentences):
            owners, own = self._parts[part]["sentences"], sentences[mine] - self._first_sentence[part]
            first[mine] = np.searchsorted(owners, own) + self._first_entry[part]
            last[mine] = np.searchsorted(owners, own, side="right") + self._first_entry[part]
        return first, last - first

    def _compile_parts(self, earlier: SourceIndex | None, shared: int) -> ctypes.Array[_Part]:
        """The parts as compiled code sees them; what an earlier state has of them is copied."""
        parts = (_Part * len(self._parts))()
        if earlier is not None:
            ctypes.memmove(parts, earlier._compiled_parts, shared * ctypes.sizeof(_Part))
        for place, (part, passed_over) in enumerate(zip(self._parts, self._passed_over, strict=True)):
            if earlier is not None and place < shared and passed_over is earlier._passed_over[place]:
                continue
            arrays = [part[name] for name in ("posting_sentences", "source_tokens", "source_offsets")]
            at = [array.ctypes.data for array in arrays]
            sizes = (len(arrays[2]) - 1, int(self._first_sentence[place]), len(arrays[1]))
            owners = (len(part["sentences"]), int(self._first_entry[place]), part["sentences"].ctypes.data)
            parts[place] = _Part(*sizes, *at, None if passed_over is None else passed_over.ctypes.data, *owners)
        return parts

    @cached_property
    def _compiled(self) -> _Index:
        """As compiled code sees it. It points into arrays that live as long as this does."""
        directories = (_Directory * 2)(
            *(_Directory(each.first.ctypes.data, each.places.ctypes.data) for each in (self._base, self._newer))
        )
        of_parts = (len(self._parts), ctypes.addressof(self._compiled_parts))
        known = self.statistics
        of_sources = (self._vocabulary, known.sentences, known.mean_length)
        return _Index(*of_sources, *of_parts, directories, known.postings.ctypes.data)

    # In NumPy ---------------------------------------------------------------------------------------------------------

    def _choose(self, source: list[int], count: int, candidates: int) -> tuple[list[int], tuple[float, float]]:
        """The same for one source: numbers of sentences, -1 where there are no more, and what they cover."""
        idf = self.statistics.idf(source)
        proposed = self._propose(idf, max(MAX_PROPOSED, candidates), POSTINGS * count)[:candidates]
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
            lost = left[grams] - np.floor(left[grams] * _LEFT)
            left[grams] -= lost
            gains -= held[:, grams] @ lost
            gains[chosen] = -1
        by_any = float(weights[left < weights].sum())
        return [*proposed[chosen].tolist(), *[-1] * (count - len(chosen))], (by_any / total, by_one / total)

    def _grams_held(
        self, source: list[int], idf: dict[int, float], proposed: Array, begins: Array, lengths: Array
    ) -> tuple[Array, Array]:
        """The weights of the source's n-grams, (n,), and which sentences hold each, (sentences, n), 1 or 0; float64.

        An n-gram is known by the number of the one without its last token, and that token.
        """
        tokens, rows = self._tokens_at(proposed, begins, lengths), np.repeat(np.arange(len(proposed)), lengths)
        ends = np.repeat(np.cumsum(lengths), lengths)
        kinds = self._vocabulary
        own = np.array([token if token in idf else -1 for token in source], np.int64)
        at, own_at = np.arange(len(tokens)), np.arange(len(own))  # where n-grams begin that go on
        grams, own_grams = np.zeros(len(tokens), np.int64), np.zeros(len(own), np.int64)
        sums = np.zeros(len(own))
        idfs = np.array([idf.get(token, 0.0) for token in source])
        weights, held = [], []
        for n in range(ORDERS):
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
        """About so many sentences with the most of the rare tokens, ranked with their lengths."""
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
        """The sentences that hold some of these tokens, and the sums of the weights that each holds, float32."""
        numbers, scores = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for token, weight in proposing:
            mine = self._sentences_with(token)
            numbers.append(mine)
            scores.append(np.full(len(mine), weight, np.float32))
        sentences, places = np.unique(np.concatenate(numbers), return_inverse=True)
        return sentences, np.bincount(places, np.concatenate(scores), len(sentences)).astype(np.float32)

    def _ranked(self, sentences: Array, sums: Array, mean_length: float) -> Array:
        """Their sums, with lengths allowed for as in BM25."""
        lengths = self._sources_of(sentences)[1].astype(np.float32)
        ranked: Array = sums / (1 + _BM25_K * (1 - _BM25_B + _BM25_B * lengths / np.float32(mean_length)))
        return ranked

    # As a part of a larger store --------------------------------------------------------------------------------------

    def candidates(
        self, proposing: Sequence[tuple[int, float]], mean_length: float, count: int, highest: float
    ) -> tuple[Array, float, float]:
        """Every sentence that a larger store, of which this is a part, could choose among `count` for a source.

        proposing: the tokens that propose sentences there, with their weights; mean_length: of a source there
        highest: the largest sum of weights that a sentence there is known to have, 0 where nobody knows

        Also the largest sum here, and up to which largest sum there nothing is missing. The larger store goes on with
        the sentences whose sums are at most a step below the last of the `most` largest sums. Its last one is no lower
        than the last one here, and a step is a part of its largest sum. Of sentences with one sum, those ranked best
        count.
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

    def tokens_of(self, sentences: Array) -> dict[str, Array]:
        """The arrays of the source side of some sentences, as a segment has them."""
        begins, lengths = self._sources_of(sentences)
        tokens = self._tokens_at(sentences, begins, lengths).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return {"source_tokens": tokens, "source_offsets": offsets, **posting_arrays(tokens, offsets)}

    def hashes_of(self, sentences: Array) -> Array:
        """(n,) uint64, of the sources of sentences."""
        return self._same.hashes_of(sentences)

    def alike(self, hashes: Array) -> Array:
        """The sentences whose sources have one of these hashes and that are not removed, ascending."""
        return self._same.alike(np.unique(hashes))

    def entries_with(self, hashes: Array) -> Array:
        """The entries of these sentences."""
        return ranges(*self._stretches(self.alike(hashes)))

    def by_segment(self, sentences: Array) -> Iterator[tuple[int, Array, Array]]:
        """Each segment that has some of these sentences, which they are there, and the places of their entries."""
        for part, mine in self._by_part(sentences):
            own = sentences[mine] - self._first_sentence[part]
            first, sizes = self._stretches(sentences[mine])
            yield part, own, ranges(first - self._first_entry[part], sizes)

    def _sentences_with(self, token: int) -> Array:
        """Those that may be chosen, once for each time that they have it."""
        found = []
        for directory in (self._base, self._newer):
            for part, begin, end in directory.places[directory.first[token] : directory.first[token + 1]].tolist():
                mine, removed = self._parts[part]["posting_sentences"][begin:end], self._passed_over[part]
                if len(mine) and not 0 <= mine.min() <= mine.max() < len(self._parts[part]["source_offsets"]) - 1:
                    raise DatastoreDamagedError(f"{self._place}: {_DAMAGED}")
                found.append((mine if removed is None else mine[removed[mine] == 0]) + self._first_sentence[part])
        return np.concatenate([np.empty(0, np.int64), *found])

    def _tokens_of(self, sentence: int) -> list[int]:
        sentences = np.array([sentence])
        tokens: list[int] = self._tokens_at(sentences, *self._sources_of(sentences)).tolist()
        return tokens

    def _sources_of(self, sentences: Array) -> tuple[Array, Array]:
        """Where the source of each sentence begins among the tokens of its part, and how many it has."""
        begins, lengths = np.empty(len(sentences), np.int64), np.empty(len(sentences), np.int64)
        for part, mine in self._by_part(sentences):
            offsets, own = self._parts[part]["source_offsets"], sentences[mine] - self._first_sentence[part]
            begins[mine] = offsets[own]
            lengths[mine] = offsets[own + 1] - begins[mine]
        return begins, lengths

    def _tokens_at(self, sentences: Array, begins: Array, lengths: Array) -> Array:
        """The source tokens of sentences, one after the other."""
        tokens = np.empty(int(lengths.sum()), np.int64)
        into = np.cumsum(lengths) - lengths
        for part, mine in self._by_part(sentences):
            sizes = lengths[mine]
            tokens[ranges(into[mine], sizes)] = self._parts[part]["source_tokens"][ranges(begins[mine], sizes)]
        return tokens

    def _by_part(self, sentences: Array) -> Iterator[tuple[int, Array]]:
        """Each part that has some of the sentences, and which these are."""
        parts = np.searchsorted(self._first_sentence, sentences, side="right") - 1
        for part in np.unique(parts).tolist():
            yield part, np.flatnonzero(parts == part)


def _none(vocabulary: int) -> SourceStatistics:
    return SourceStatistics(0, np.zeros(vocabulary, np.int64))


def _name(segment: Segment) -> SegmentRecord:
    """What a segment is, whatever was removed from it."""
    return replace(segment.record, removed=None)


def _sound_arrays(segment: Segment, tokenized: _Tokenized | None) -> dict[str, Array]:
    """A segment's source tokens and postings. What would lead compiled code to other memory is refused."""
    if "source_tokens" not in segment.arrays and tokenized is not None:
        made = tokenized(segment)
        hashes = hashes_of(made["source_tokens"], made["source_offsets"])
        return {**made, "sentences": segment.owners(), "hashes": hashes}
    offsets = segment.offsets("source_offsets")
    tokens = segment.source_tokens()
    arrays = {"source_tokens": tokens, "source_offsets": offsets, "sentences": segment.owners()}
    arrays["hashes"] = hashes_of(tokens, offsets)
    if "posting_tokens" not in segment.arrays:
        return {**arrays, **posting_arrays(tokens, offsets)}
    tokens, postings = segment.arrays["posting_tokens"], segment.offsets("posting_offsets")
    if (len(tokens) and not 0 <= tokens[0] <= tokens[-1] < MAX_TOKENS) or not ascending(tokens, each_once=True):
        raise segment.damaged("its postings are not those of tokens in order")
    sentences = segment.arrays["posting_sentences"]
    return {**arrays, "posting_tokens": tokens, "posting_offsets": postings, "posting_sentences": sentences}
