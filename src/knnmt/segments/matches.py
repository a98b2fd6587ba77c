"""The closest source segment of a translation memory, scored as translators' tools score matches.

Such tools call a segment of the memory a match of 100 % if its source is the text itself, and a fuzzy match if it is
similar. The percentage is made from the number of words to edit, and tools usually offer matches from about 70 % on.
Tools count case, spacing, punctuation and tags differently, often as a point or so. So their scores and these can be
compared in rank and size, not to the last point. The score here:

    score = 100 * (1 - distance / tokens of the longer), rounded down

distance counts the tokens to insert, delete or substitute, whatever their case. A token is a word, a number, a
punctuation mark, a tag or a placeholder; in scripts without spaces between words, a character. 100 means the same text,
whatever its white space and its accelerator mark. Texts with the same tokens that differ otherwise, for example in
case, score 99.

The search is exact. An alignment can keep at most the tokens that a segment shares with the text. The store's postings
of words give their number, which bounds the score. Segments are scored from the highest bound down, until no remaining
bound can win.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from knnmt.corpus.accelerators import accelerators_in
from knnmt.corpus.match_tokens import tokens_of, word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import WORDS
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import Datastore
from knnmt.errors import MissingDependencyError, SettingError


@dataclass(frozen=True, slots=True)
class Match:
    """A segment of the memory that is similar to a text.

    score: 0 to 100, a percentage, rounded down
    exact: the source equals the text, as the model sees both; only then is the score 100
    """

    source: str
    target: str
    origin: str
    score: int
    exact: bool


def likeness(one: str, other: str) -> float:
    """How alike two texts are, 0 to 100: the score of a match, not rounded."""
    words, others = tokens_of(one), tokens_of(other)
    longer = max(len(words), len(others))
    return 100.0 * (1 - _edit_distance()(words, others) / longer) if longer else 100.0


class SourceMatcher:
    """Finds the closest source segment of a store in the store's present state.

    The files of the store say where words occur. It takes eight bytes of memory per sentence. Threads may share it.
    """

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._lock = Lock()
        self._shown: list[Segment] = []
        self._parts: dict[SegmentRecord, _Words] = {}
        self._first_sentence = np.zeros(1, np.int64)
        self._removed = np.empty(0, np.int64)

    def closest(self, text: str, at_least: int = 50) -> Match | None:
        """The segment with the highest score, if that reaches `at_least`; among equals, the one added last."""
        return next(iter(self.matches(text, at_least, 1)), None)

    def matches(self, text: str, at_least: int = 50, most: int = 5) -> list[Match]:
        """The segments with the highest scores from `at_least` on, best first; among equals, those added last."""
        if not 1 <= at_least <= 100:
            raise SettingError(f"at_least must be a percentage from 1 to 100, got {at_least}")
        if most < 1:
            raise SettingError(f"most must be at least 1, got {most}")
        with self._lock:
            segments = self._store.segments
            if segments is not self._shown:  # every change and every refresh makes a new list
                self._follow(segments)
            dropped = self._store.manifest.accelerators == "drop"
            others = [mark.dropped_from(text) for mark in accelerators_in(text)] if dropped else []
            found: dict[int, tuple[int, Match]] = {}  # by sentence: the text fits with or without its mark
            for each in (text, *others):
                for number, match in self._search(each, at_least, most):
                    if number not in found or match.score > found[number][0]:
                        found[number] = match.score, match
            ranked = sorted(found, key=lambda number: (found[number][0], number), reverse=True)
            return [found[number][1] for number in ranked[:most]]

    # Following the store ----------------------------------------------------------------------------------------------

    def _follow(self, segments: list[Segment]) -> None:
        """Add the content that the store shows now and did not show before."""
        known = self._parts
        self._parts = {
            name: known.get(name) or _Words.of(segment.words(), segment.record.sentences)
            for name, segment in ((replace(segment.record, removed=None), segment) for segment in segments)
        }
        self._first_sentence = np.cumsum([0, *(segment.record.sentences for segment in segments)])
        firsts = zip(self._first_sentence.tolist(), segments, strict=False)
        removed = [first + segment.gone_sentences() for first, segment in firsts]
        self._removed = np.concatenate([np.empty(0, np.int64), *removed])
        self._shown = segments

    def _seen(self, pair: SegmentPair) -> str:
        return for_model(pair, self._store.manifest.accelerators).source

    # Searching --------------------------------------------------------------------------------------------------------

    def _search(self, text: str, at_least: int, most: int) -> list[tuple[int, Match]]:
        """The best matches with the numbers of their sentences, in no order."""
        edit_distance = _edit_distance()
        words = tokens_of(text)
        best: list[tuple[tuple[int, int], Match]] = []
        floor = (at_least, -1)  # what a match must be above: the least of the best, when there are enough
        for bound, number in self._candidates(word_hashes(text), at_least):
            if bound < floor[0]:
                break
            if (bound, number) < floor:
                continue
            pair = self._pair(number)
            source = self._seen(pair)
            exact = plain(source) == plain(text)
            if exact:
                score = 100
            else:
                others = tokens_of(source)
                longer = max(len(words), len(others))
                cutoff = (100 - floor[0]) * longer // 100  # beyond that it cannot win, and is not computed
                score = min(99, 100 * (longer - edit_distance(words, others, score_cutoff=cutoff)) // longer)
            if (score, number) > floor:
                best.append(((score, number), Match(pair.source, pair.target, pair.origin, score, exact)))
                if len(best) > most:
                    best.remove(min(best, key=lambda each: each[0]))
                if len(best) == most:
                    floor = min(rank for rank, _ in best)
        return [(rank[1], match) for rank, match in best]

    def _candidates(self, words: list[int], at_least: int) -> list[tuple[int, int]]:
        """(bound of the score, number) of each sentence that may reach `at_least`; highest first, then newest."""
        counts = Counter(words)
        asked = np.array(sorted(counts), np.int32)
        numbers, bounds = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for first, part in zip(self._first_sentence.tolist(), self._parts.values(), strict=False):
            if shared := list(part.shared(asked, counts)):
                overlap = np.bincount(np.concatenate(shared), minlength=len(part.lengths))
                longer = np.maximum(part.lengths, len(words))
                mine = np.flatnonzero(100 * overlap >= at_least * longer)
                numbers.append(first + mine)
                bounds.append(100 * overlap[mine] // longer[mine])
        number, bound = np.concatenate(numbers), np.concatenate(bounds)
        live = ~np.isin(number, self._removed)
        number, bound = number[live], bound[live]
        order = np.lexsort((number, bound))[::-1]
        return list(zip(bound[order].tolist(), number[order].tolist(), strict=True))

    def _pair(self, number: int) -> SegmentPair:
        segment = int(np.searchsorted(self._first_sentence, number, side="right")) - 1
        return self._shown[segment].pair(number - int(self._first_sentence[segment]))


@dataclass(frozen=True, slots=True)
class _Words:
    """Where the words of a segment's sources occur.

    words (distinct,) int32: their hashes, ascending
    offsets (distinct + 1,) int64: where the sentences of each word begin
    sentences (occurrences,) int32: ascending for each word; a sentence is repeated for each time it holds the word
    repeated (distinct,) bool: whether a sentence holds the word more than once
    lengths (sentences,) int64: how many words each has
    """

    words: Array
    offsets: Array
    sentences: Array
    repeated: Array
    lengths: Array

    @classmethod
    def of(cls, arrays: dict[str, Array], count: int) -> _Words:
        words, offsets, sentences = (arrays[name] for name in WORDS)
        again = np.flatnonzero(sentences[1:] == sentences[:-1]) + 1
        places = np.searchsorted(offsets, again, side="right") - 1
        repeated = np.zeros(len(words), np.bool_)
        repeated[places[offsets[places] < again]] = True  # otherwise it is the first of the next word
        return cls(words, offsets, sentences, repeated, np.bincount(sentences, minlength=count))

    def shared(self, words: Array, times: Mapping[int, int]) -> Iterator[Array]:
        """For each of these words, the sentences that hold it, repeated for each time, but at most `times` of it."""
        if not len(self.words):
            return
        places = np.searchsorted(self.words, words).clip(max=len(self.words) - 1)
        held = self.words[places] == words
        places = places[held]
        columns = (words[held], self.offsets[places], self.offsets[places + 1], self.repeated[places])
        for word, begin, end, repeated in zip(*(column.tolist() for column in columns), strict=True):
            sentences, most = self.sentences[begin:end], times[word]
            if repeated:
                kept = np.ones(len(sentences), np.bool_)
                kept[most:] = sentences[most:] != sentences[:-most]
                sentences = sentences[kept]
            yield sentences


def _edit_distance() -> Callable[..., int]:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise MissingDependencyError("rapidfuzz", "finding the closest segment of a memory", "matches") from error
    return Levenshtein.distance
