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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import posting_arrays
from knnmt.datastore.segment import MAX_TOKENS, Segment, ascending
from knnmt.errors import DatastoreDamagedError
from knnmt.native import library

POSTINGS = 400  # read for each sentence that is chosen; the rarest token's are read in any case
MAX_PROPOSED = 1024  # sentences that are ranked by length, too
CANDIDATES = 6  # for each sentence that is chosen
MIN_CANDIDATES = 384
ORDERS = 4  # of n-grams
_BM25_K, _BM25_B = 1.2, 0.75
_LENGTH_OFFSET, _LENGTH_POWER = 10.0, -0.3
_LEFT = 0.5  # of the weight of what is covered once more
_TOKENS = 4096  # vocabularies are counted in: a new token seldom makes one larger
_DAMAGED = "its postings name sentences that it does not have; `knnmt verify` says all that is wrong with it"
_FACTOR = 0x9E3779B97F4A7C15  # odd, with about as many ones as zeros
_STEPS = 512  # of height that proposed sentences are told apart by


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


class _SameSources(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("ordered", "sentences", "hashes")),
    )


def _at(array: Array | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a source a memory holds, 0 to 1: the part of its n-grams (n up to 4), rare words weighing more.

    covered: held by the segments that were chosen for it together; by_one: by the one that holds most
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
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        earlier: SourceIndex | None = None,
        tokenized: Callable[[Segment], dict[str, Array]] | None = None,
    ) -> None:
        self._names = [replace(segment.record, removed=None) for segment in segments]
        known = earlier.known_parts() if earlier is not None else {}
        self._parts: list[dict[str, Array]] = [
            known[name] if name in known else _sound_arrays(segment, tokenized)
            for name, segment in zip(self._names, segments, strict=True)
        ]
        largest = max((int(part["posting_tokens"].max(initial=0)) for part in self._parts), default=0)
        self._vocabulary = -(-(largest + 1) // _TOKENS) * _TOKENS
        self._place = segments[0].path.parent.parent if segments else None
        self._first_sentence = np.cumsum([0, *(segment.record.sentences for segment in segments)])
        self._first_entry = np.cumsum([0, *(segment.record.entries for segment in segments)])
        self.sentences = int(self._first_sentence[-1])
        firsts = zip(self._first_sentence, segments, strict=False)
        gone = [first + segment.gone_sentences() for first, segment in firsts]
        self._hashes = np.concatenate([np.empty(0, np.uint64), *(part["hashes"] for part in self._parts)])
        live = np.ones(self.sentences, np.bool_)
        live[np.concatenate([np.empty(0, np.int64), *gone])] = False
        alike = np.flatnonzero(live)
        self._alike = alike[np.argsort(self._hashes[alike], kind="stable")]  # of each source the first comes first
        self._ordered_hashes = self._hashes[self._alike]
        live[self._alike[1:][self._ordered_hashes[1:] == self._ordered_hashes[:-1]]] = False
        self._passed_over = self._masks(live)
        count = len(self._parts)
        self._base_count, self._base = self._taken_over(earlier) or (count, self._placed(0, count))
        self._newer = self._placed(self._base_count, count)
        self._postings = self._base.postings + self._newer.postings
        self._mean_length = max(1.0, float(self._postings.sum()) / max(1, self.sentences))

    def known_parts(self) -> dict[SegmentRecord, dict[str, Array]]:
        """The arrays of each segment, by its record without what was removed from it."""
        return dict(zip(self._names, self._parts, strict=True))

    def _masks(self, chosen_from: Array) -> list[Array | None]:
        """For each part (sentences,) uint8, 1 for those that are not to be chosen, or None where all may be."""
        parts = np.split(~chosen_from, self._first_sentence[1:-1]) if self._parts else []
        return [part.astype(np.uint8) if part.any() else None for part in parts]

    def _placed(self, first: int, last: int) -> _Places:
        return _Places.of(self._parts[first:last], first, self._vocabulary)

    def _taken_over(self, earlier: SourceIndex | None) -> tuple[int, _Places] | None:
        """The places that an earlier state had, if this one begins with its parts and has not much more."""
        if earlier is None or earlier._vocabulary != self._vocabulary:
            return None
        if self._names[: earlier._base_count] != earlier._names[: earlier._base_count]:
            return None
        newer = sum(len(part["source_tokens"]) for part in self._parts[earlier._base_count :])
        return (earlier._base_count, earlier._base) if 2 * newer <= earlier._base.postings.sum() else None

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

    def entries_of(self, chosen: Array, first_of: Array | None = None) -> list[Array]:
        """For each row of chosen sentences, the ids of their entries and of those with the same sources, (n,) int64.

        They are ascending, each once. Sentences of -1 are passed over.
        first_of: the entry in whose place each is searched for
        """
        if (native := library()) is None:
            return [self._entries_of(mine, first_of) for mine in chosen]
        chosen = np.ascontiguousarray(chosen)
        sizes = np.empty(len(chosen), np.int64)
        given = (ctypes.byref(self._compiled), ctypes.byref(self._same), _at(first_of))
        of_chosen = (*chosen.shape, torch.get_num_threads(), _at(chosen))
        native.knnmt_own_entries(*given, *of_chosen, None, _at(sizes), None)
        offsets = np.cumsum([0, *sizes])
        ids = np.empty(int(offsets[-1]), np.int64)
        native.knnmt_own_entries(*given, *of_chosen, _at(offsets), _at(sizes), _at(ids))
        return [ids[first : first + size] for first, size in zip(offsets.tolist(), sizes.tolist(), strict=False)]

    def _entries_of(self, sentences: Array, first_of: Array | None) -> Array:
        """The same for one row, in NumPy."""
        hashes = self._hashes[sentences[sentences >= 0]]
        begin, end = (np.searchsorted(self._ordered_hashes, hashes, side=side) for side in ("left", "right"))
        ids = _ranges(*self._stretches(np.unique(self._alike[_ranges(begin, end - begin)])))
        return ids if first_of is None else np.unique(first_of[ids])

    def _stretches(self, sentences: Array) -> tuple[Array, Array]:
        """The first entry of each sentence, and how many it has."""
        parts = np.searchsorted(self._first_sentence, sentences, side="right") - 1
        first, last = np.empty(len(sentences), np.int64), np.empty(len(sentences), np.int64)
        for part in np.unique(parts):
            mine = parts == part
            owners, own = self._parts[part]["sentences"], sentences[mine] - self._first_sentence[part]
            first[mine] = np.searchsorted(owners, own) + self._first_entry[part]
            last[mine] = np.searchsorted(owners, own, side="right") + self._first_entry[part]
        return first, last - first

    @cached_property
    def _same(self) -> _SameSources:
        """As compiled code sees which sentences have the same source."""
        arrays = (self._ordered_hashes, self._alike, self._hashes)
        return _SameSources(len(self._alike), *(array.ctypes.data for array in arrays))

    @cached_property
    def _compiled(self) -> _Index:
        """As compiled code sees it. It points into arrays that live as long as this does."""
        parts = (_Part * len(self._parts))()
        for place, (part, passed_over) in enumerate(zip(self._parts, self._passed_over, strict=True)):
            arrays = [part[name] for name in ("posting_sentences", "source_tokens", "source_offsets")]
            at = [array.ctypes.data for array in arrays]
            sizes = (len(arrays[2]) - 1, int(self._first_sentence[place]), len(arrays[1]))
            owners = (len(part["sentences"]), int(self._first_entry[place]), part["sentences"].ctypes.data)
            parts[place] = _Part(*sizes, *at, None if passed_over is None else passed_over.ctypes.data, *owners)
        self._compiled_parts = parts
        directories = (_Directory * 2)(
            *(_Directory(each.first.ctypes.data, each.places.ctypes.data) for each in (self._base, self._newer))
        )
        of_parts = (len(parts), ctypes.addressof(parts))
        return _Index(
            self._vocabulary, self.sentences, self._mean_length, *of_parts, directories, self._postings.ctypes.data
        )

    # In NumPy ---------------------------------------------------------------------------------------------------------

    def _choose(self, source: list[int], count: int, candidates: int) -> tuple[list[int], tuple[float, float]]:
        """The same for one source: numbers of sentences, -1 where there are no more, and what they cover."""
        weights = {token: self._idf(token) for token in source if 0 <= token < self._vocabulary}
        proposed = self._propose(weights, max(MAX_PROPOSED, candidates), POSTINGS * count)[:candidates]
        grams: dict[tuple[int, ...], float] = {}
        for n in range(1, ORDERS + 1):
            for first in range(len(source) - n + 1):
                gram = tuple(source[first : first + n])
                if all(token in weights for token in gram):
                    grams[gram] = sum(weights[token] for token in gram) * n**0.5
        numbers = {gram: number for number, gram in enumerate(grams)}
        held = np.zeros((len(proposed), len(grams)), np.float32)
        lengths = np.empty(len(proposed), np.float32)
        for row, sentence in enumerate(proposed.tolist()):
            tokens = self._tokens_of(sentence)
            lengths[row] = len(tokens)
            for first, token in enumerate(tokens):
                if token in weights:
                    for n in range(1, ORDERS + 1):
                        if (number := numbers.get(tuple(tokens[first : first + n]))) is not None:
                            held[row, number] = 1
        whole = np.array(list(grams.values()), np.float32)
        left, norms = whole.copy(), (_LENGTH_OFFSET + lengths) ** _LENGTH_POWER
        chosen: list[int] = []
        gains = np.empty(0)
        while len(chosen) < min(count, len(proposed)):
            gains = held @ left * norms
            gains[chosen] = -1
            chosen.append(int(gains.argmax()))
            left[held[chosen[-1]] > 0] *= _LEFT
        total = max(float(whole.sum()), 1e-9)
        by_any = float(whole[held[chosen].any(0)].sum()) / total if chosen else 0.0
        by_one = float((held @ whole).max(initial=0)) / total
        return [*proposed[chosen].tolist(), *[-1] * (count - len(chosen))], (by_any, by_one)

    def _idf(self, token: int) -> float:
        held = float(self._postings[token])
        return float(np.log(1 + (max(self.sentences - held, 0.0) + 0.5) / (held + 0.5)))

    def _propose(self, weights: dict[int, float], most: int, postings: int) -> Array:
        """About so many sentences with the most of the rare tokens, ranked with their lengths."""
        rarest = sorted(weights, key=lambda token: (self._postings[token], token))
        read, numbers, scores = 0, [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for token in rarest:
            if read and read + self._postings[token] > postings:
                break
            read += int(self._postings[token])
            mine = self._sentences_with(token)
            numbers.append(mine)
            scores.append(np.full(len(mine), weights[token], np.float32))
        sentences, places = np.unique(np.concatenate(numbers), return_inverse=True)
        sums = np.bincount(places, np.concatenate(scores), len(sentences)).astype(np.float32)
        if not len(sentences):
            return sentences
        steps = (sums * ((_STEPS - 1) / max(float(sums.max()), 1e-30))).astype(np.int64)
        reached = np.cumsum(np.bincount(steps, minlength=_STEPS)[::-1]) >= most
        lowest = _STEPS - 1 - int(reached.argmax()) if reached.any() else 0
        sentences, sums = sentences[steps >= lowest], sums[steps >= lowest]
        lengths = np.array([len(self._tokens_of(sentence)) for sentence in sentences.tolist()], np.float32)
        ranked = sums / (1 + _BM25_K * (1 - _BM25_B + _BM25_B * lengths / np.float32(self._mean_length)))
        return sentences[np.lexsort((sentences, -ranked))]

    def _sentences_with(self, token: int) -> Array:
        found = []
        for directory in (self._base, self._newer):
            for part, begin, end in directory.places[directory.first[token] : directory.first[token + 1]].tolist():
                mine, removed = self._parts[part]["posting_sentences"][begin:end], self._passed_over[part]
                if len(mine) and not 0 <= mine.min() <= mine.max() < len(self._parts[part]["source_offsets"]) - 1:
                    raise DatastoreDamagedError(f"{self._place}: {_DAMAGED}")
                found.append((mine if removed is None else mine[removed[mine] == 0]) + self._first_sentence[part])
        return np.concatenate([np.empty(0, np.int64), *found])

    def _tokens_of(self, sentence: int) -> list[int]:
        part = int(np.searchsorted(self._first_sentence, sentence, side="right")) - 1
        arrays = self._parts[part]
        place = sentence - int(self._first_sentence[part])
        begin, end = arrays["source_offsets"][place : place + 2].tolist()
        tokens: list[int] = arrays["source_tokens"][begin:end].tolist()
        return tokens


def _sound_arrays(segment: Segment, tokenized: Callable[[Segment], dict[str, Array]] | None) -> dict[str, Array]:
    """A segment's source tokens and postings. What would lead compiled code to other memory is refused."""
    if "source_tokens" not in segment.arrays and tokenized is not None:
        made = tokenized(segment)
        hashes = _hashes_of(made["source_tokens"], made["source_offsets"])
        return {**made, "sentences": segment.owners(), "hashes": hashes}
    offsets = segment.offsets("source_offsets")
    tokens = segment.source_tokens()
    arrays = {"source_tokens": tokens, "source_offsets": offsets, "sentences": segment.owners()}
    arrays["hashes"] = _hashes_of(tokens, offsets)
    if "posting_tokens" not in segment.arrays:
        return {**arrays, **posting_arrays(tokens, offsets)}
    tokens, postings = segment.arrays["posting_tokens"], segment.offsets("posting_offsets")
    if (len(tokens) and not 0 <= tokens[0] <= tokens[-1] < MAX_TOKENS) or not ascending(tokens, each_once=True):
        raise segment.damaged("its postings are not those of tokens in order")
    sentences = segment.arrays["posting_sentences"]
    return {**arrays, "posting_tokens": tokens, "posting_offsets": postings, "posting_sentences": sentences}


def _ranges(first: Array, sizes: Array) -> Array:
    """Whole numbers from each `first` on, as many as its size says, one range after the other."""
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    numbers: Array = np.repeat(first, sizes) + within
    return numbers


def _hashes_of(tokens: Array, offsets: Array) -> Array:
    """(sentences,) uint64, the same for sentences of the same tokens: sums of tokens times powers, in 64 bits."""
    lengths = np.diff(offsets)
    powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, _FACTOR, np.uint64))
    products = (tokens.astype(np.uint64) + np.uint64(1)) * powers[_ranges(np.zeros(len(lengths), np.int64), lengths)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)])
    hashes: Array = sums[offsets[1:]] - sums[offsets[:-1]]
    return hashes
