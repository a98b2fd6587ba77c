"""The source side of a store: the tokens of its sentences' sources, and where each token occurs.

It follows a changing store: it reuses what was sorted for an earlier state, and keeps newer sentences beside that. One
sentence stands for all with the same source; the others are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.datastore.joining import MAX_JOINED_ENTRIES
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import posting_arrays
from knnmt.datastore.segment import MAX_TOKENS, Segment, ascending
from knnmt.errors import DatastoreDamagedError
from knnmt.segments.same_sources import HashOrder, SameSources, hashes_of, ranges

_VOCABULARY_STEP = 4096  # vocabulary sizes are rounded up to such steps, so that a new token seldom changes them
_DAMAGED = "its postings name sentences that it does not have; `knnmt verify` lists all problems"


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """How often tokens occur in the sources of a store, or of several together.

    sentences: number of sentences; postings: (vocabulary,) int64, number of postings of each token
    """

    sentences: int
    postings: Array

    @classmethod
    def together(cls, several: Sequence[SourceStatistics]) -> SourceStatistics:
        """The statistics of several stores as if they were one."""
        postings = np.zeros(max((len(each.postings) for each in several), default=0), np.int64)
        for each in several:
            postings[: len(each.postings)] += each.postings
        return cls(sum(each.sentences for each in several), postings)

    @property
    def mean_length(self) -> float:
        """The mean length of a source, in tokens."""
        return max(1.0, float(self.postings.sum()) / max(1, self.sentences))

    def idf(self, source: Sequence[int]) -> dict[int, float]:
        """The weight of each token of a source; rare tokens weigh more."""
        held = {token: float(self.postings[token]) for token in source if 0 <= token < len(self.postings)}
        return {
            token: float(np.log1p((max(self.sentences - count, 0.0) + 0.5) / (count + 0.5)))
            for token, count in held.items()
        }

    def proposing(self, idf: Mapping[int, float], most: int) -> list[tuple[int, float]]:
        """The tokens that propose sentences, rarest first, with their weights, up to `most` postings."""
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
    places: (places, 3) int32, a part, and the begin and end in its postings
    postings: (vocabulary,) int64, number of postings of each token
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


class SourceSide:
    """A snapshot of the source side of a store. Threads may share it.

    earlier: the source side of an earlier state; parts that both have in common are not sorted again
    of_more: the statistics of a larger store that the segments are a part of; by default their own
    max_newer_tokens: so many are sorted again at each addition; beyond it they join the lasting part
    """

    max_newer_tokens = 1 << 20

    def __init__(
        self,
        segments: Sequence[Segment],
        earlier: SourceSide | None = None,
        of_more: SourceStatistics | None = None,
    ) -> None:
        shared = 0 if earlier is None else earlier._in_common(segments)
        self._shared: int = shared  # number of first segments that an earlier state has, too
        self._segments = list(segments)
        self._parts = self._parts_of(segments, earlier, shared)
        largest = max((int(part["posting_tokens"].max(initial=0)) for part in self._parts[shared:]), default=0)
        needed = -(-(largest + 1) // _VOCABULARY_STEP) * _VOCABULARY_STEP
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

    def _in_common(self, segments: Sequence[Segment]) -> int:
        """The number of first segments that are the same here, apart from removed sentences."""
        pairs = zip(self._segments, segments, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1] or _name(pair[0]) == _name(pair[1]), pairs))

    @staticmethod
    def _parts_of(segments: Sequence[Segment], earlier: SourceSide | None, shared: int) -> list[dict[str, Array]]:
        if earlier is None:
            return [_sound_arrays(segment) for segment in segments]
        others = zip(map(_name, earlier._segments[shared:]), earlier._parts[shared:], strict=True)
        known = dict(others)
        newer = [known.get(_name(segment)) or _sound_arrays(segment) for segment in segments[shared:]]
        return [*earlier._parts[:shared], *newer]

    def _goes_on(self, earlier: SourceSide, shared: int) -> bool:
        """Whether this state begins with the sorted part of an earlier one, and has not much more."""
        if earlier._vocabulary != self._vocabulary or shared < earlier._base_count or not earlier._base_count:
            return False
        newer = sum(len(part["source_tokens"]) for part in self._parts[earlier._base_count :])
        return bool(newer <= max(self.max_newer_tokens, int(earlier._base.postings.sum()) // 16))

    def _long_there(self) -> int:
        """The number of first segments in the lasting part. The others may soon be joined with additions."""
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

    def _masks(self, earlier: SourceSide | None, shared: int) -> list[Array | None]:
        """For each part (sentences,) uint8, 1 for those that must not be chosen, or None if all may be chosen."""
        if earlier is None:
            masks: list[Array | None] = [None] * len(self._parts)
            self._mark(masks, *self._same.passed_over())
            hashes = self._same.newer.hashes
        else:
            masks = [*earlier._passed_over[:shared], *[None] * (len(self._parts) - shared)]
            hashes = self._changed(earlier, shared)
        self._mark(masks, *self._same.passed_over(np.unique(hashes)))
        return masks

    def _changed(self, earlier: SourceSide, shared: int) -> Array:
        """The hashes of the sources of sentences that were added or removed since an earlier state.

        Sentences that vanished with the last segments do not matter: only the first of equal ones stands for others.
        """
        found = [part["hashes"] for part in self._parts[shared:]]
        for part, then, now in zip(self._parts[:shared], earlier._segments, self._segments, strict=False):
            if then is not now:
                found.append(part["hashes"][np.setxor1d(then.gone_sentences(), now.gone_sentences())])
        return np.concatenate([np.empty(0, np.uint64), *found])

    def _mark(self, masks: list[Array | None], numbers: Array, passed_over: Array) -> None:
        """Mark whether some sentences are skipped. Masks that another index may share are not changed."""
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
        """The source tokens of a sentence, by its segment's number and its number in that segment."""
        return self._tokens_of(int(self._first_sentence[segment]) + sentence)

    # Reading ----------------------------------------------------------------------------------------------------------

    def tokens_of(self, sentences: Array) -> dict[str, Array]:
        """The source-side arrays of some sentences, in the form of a segment."""
        begins, lengths = self._sources_of(sentences)
        tokens = self._tokens_at(sentences, begins, lengths).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return {"source_tokens": tokens, "source_offsets": offsets, **posting_arrays(tokens, offsets)}

    def hashes_of(self, sentences: Array) -> Array:
        """(n,) uint64, the hashes of the sources of sentences."""
        return self._same.hashes_of(sentences)

    def alike(self, hashes: Array) -> Array:
        """The live sentences whose sources have one of these hashes, ascending."""
        return self._same.alike(np.unique(hashes))

    def entries_with(self, hashes: Array) -> Array:
        """The entries of the live sentences whose sources have one of these hashes."""
        return ranges(*self._stretches(self.alike(hashes)))

    def by_segment(self, sentences: Array) -> Iterator[tuple[int, Array, Array]]:
        """Each segment that has some of these sentences, their numbers in it, and the places of their entries."""
        for part, mine in self._by_part(sentences):
            own = sentences[mine] - self._first_sentence[part]
            first, sizes = self._stretches(sentences[mine])
            yield part, own, ranges(first - self._first_entry[part], sizes)

    def _stretches(self, sentences: Array) -> tuple[Array, Array]:
        """The first entry of each sentence, and its number of entries."""
        first, last = np.empty(len(sentences), np.int64), np.empty(len(sentences), np.int64)
        for part, mine in self._by_part(sentences):
            owners, own = self._parts[part]["sentences"], sentences[mine] - self._first_sentence[part]
            first[mine] = np.searchsorted(owners, own) + self._first_entry[part]
            last[mine] = np.searchsorted(owners, own, side="right") + self._first_entry[part]
        return first, last - first

    def _sentences_with(self, token: int) -> Array:
        """The sentences that hold a token and may be chosen, once for each occurrence of the token."""
        found = []
        for directory in (self._base, self._newer):
            for part, begin, end in directory.places[directory.first[token] : directory.first[token + 1]].tolist():
                mine, removed = self._parts[part]["posting_sentences"][begin:end], self._passed_over[part]
                if len(mine) and not 0 <= mine.min() <= mine.max() < len(self._parts[part]["source_offsets"]) - 1:
                    raise self._damaged()
                found.append((mine if removed is None else mine[removed[mine] == 0]) + self._first_sentence[part])
        return np.concatenate([np.empty(0, np.int64), *found])

    def _tokens_of(self, sentence: int) -> list[int]:
        sentences = np.array([sentence])
        tokens: list[int] = self._tokens_at(sentences, *self._sources_of(sentences)).tolist()
        return tokens

    def _sources_of(self, sentences: Array) -> tuple[Array, Array]:
        """Where the source of each sentence begins among the tokens of its part, and its number of tokens."""
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
        """Each part that has some of the sentences, and which sentences these are."""
        parts = np.searchsorted(self._first_sentence, sentences, side="right") - 1
        for part in np.unique(parts).tolist():
            yield part, np.flatnonzero(parts == part)

    def _damaged(self) -> DatastoreDamagedError:
        return DatastoreDamagedError(f"{self._place}: {_DAMAGED}")


def _none(vocabulary: int) -> SourceStatistics:
    return SourceStatistics(0, np.zeros(vocabulary, np.int64))


def _name(segment: Segment) -> SegmentRecord:
    """The identity of a segment, apart from removed sentences."""
    return replace(segment.record, removed=None)


def _sound_arrays(segment: Segment) -> dict[str, Array]:
    """A segment's source tokens and postings. Refuse numbers that would lead compiled code to other memory."""
    tokens, offsets = segment.source_tokens(), segment.offsets("source_offsets")
    kinds, postings = segment.arrays["posting_tokens"], segment.offsets("posting_offsets")
    if (len(kinds) and not 0 <= kinds[0] <= kinds[-1] < MAX_TOKENS) or not ascending(kinds, each_once=True):
        raise segment.damaged("its postings are not those of tokens in order")
    return {
        "source_tokens": tokens,
        "source_offsets": offsets,
        "sentences": segment.owners(),
        "hashes": hashes_of(tokens, offsets),
        "posting_tokens": kinds,
        "posting_offsets": postings,
        "posting_sentences": segment.arrays["posting_sentences"],
    }
