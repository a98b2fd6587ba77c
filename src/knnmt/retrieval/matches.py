"""The closest source segment of a translation memory, scored as translators' tools score matches.

Such tools call a segment of the memory a match of 100 % where its source is the text itself, and a fuzzy match where it
is like it: a percentage made from the words that would have to be edited, usually offered from about 70 % on. How they
count case, spacing, punctuation and tags differs from tool to tool, often as a point or so; so their scores and these
can be compared in rank and size, not to the last point. The score here:

    score = 100 * (1 - distance / tokens of the longer), rounded down

distance counts the tokens to insert, delete or substitute, whatever their case. A token is a word, a number, a
punctuation mark, a tag or a placeholder; in scripts without spaces between words, a character. 100 means the same text,
whatever its white space and its accelerator mark; texts that have the same tokens but differ otherwise, as in case,
score 99.

The search is exact. An alignment can keep no more tokens than a segment shares with the text, which an index of tokens
tells: that bounds the score. Segments are scored from the highest bound down, until no bound is left that could win.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np

from knnmt.corpus.accelerators import MARKS, accelerators_in
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array
from knnmt.datastore.joining import same_beginning
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import Datastore
from knnmt.errors import MissingDependencyError, SettingError

# Thai, Lao, Tibetan, Burmese; Khmer; kana; Chinese characters: no spaces between words
UNPARTED = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"  # \w lacks these
_TOKEN = re.compile(
    rf"""
    </?(?:\d+|[^\W\d][^<>]*)/?>                           # a tag: <b>, </b>, <x id="1"/>, <1>
    | \$?\{{[\w.:!,-]*\}}                                 # {{0}}, {{name}}, ${{name}}
    | %(?:\(\w+\)|\d{{1,2}}\$)?[-+\#0]?\d{{0,3}}(?:\.\d{{1,3}})?[hlz]{{0,2}}[a-z](?!\w)  # %s, %1$s, %(name)s, %.2f, %lu
    | %\d{{1,2}}(?!\w)                                    # %1
    | &\#?\w+;                                            # &nbsp;
    | \d+(?:[.,:]\d+)+                                    # 1.5, 12:30
    | [{UNPARTED}]
    | [^\W{UNPARTED}]+(?:[{_MARKS}]+[^\W{UNPARTED}]*)*  # a word
    | \S
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Match:
    """A segment of the memory that is like a text.

    score: 0 to 100, a percentage, rounded down
    exact: the source is the text as the model sees both; only then is the score 100
    """

    source: str
    target: str
    origin: str
    score: int
    exact: bool


def tokens_of(text: str) -> list[str]:
    """The words, numbers, punctuation marks, tags and placeholders of a text, without their case."""
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


class SourceMatcher:
    """Finds the closest source segment of a store, as the store stands when asked.

    The index is built when first needed. Later, segments added to the store and sentences removed from it are taken in
    by themselves; after `compact`, the index is built anew. It holds four bytes for each token, five for each
    sentence, and the vocabulary. Threads may share it.
    """

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self._shown: list[Segment] | None = None
        self._segments: list[Segment] = []
        self._first_sentence = np.zeros(1, np.int64)
        self._vocabulary: dict[str, int] = {}
        self._lengths = np.empty(0, np.int32)
        self._live = np.empty(0, np.bool_)
        self._postings: list[_Postings] = []

    def closest(self, text: str, at_least: int = 50) -> Match | None:
        """The segment with the highest score, if that is `at_least`; of several, the one added last."""
        if not 1 <= at_least <= 100:
            raise SettingError(f"at_least is a percentage from 1 to 100, not {at_least}")
        with self._lock:
            segments = self._store.segments
            if segments is not self._shown:  # every change and every refresh makes a new list
                self._follow(segments)
            dropped = self._store.manifest.accelerators == "drop"
            others = [mark.dropped_from(text) for mark in accelerators_in(text)] if dropped else []
            found = [match for each in (text, *others) if (match := self._search(each, at_least))]
            return max(found, key=lambda match: match.score, default=None)

    # Following the store ----------------------------------------------------------------------------------------------

    def _follow(self, segments: list[Segment]) -> None:
        """Take in what the store shows now and did not before."""
        if same_beginning(self._segments, segments).segments < len(self._segments):
            self._clear()  # compacted: the sentences have other numbers
        self._first_sentence = np.cumsum([0, *(segment.record.sentences for segment in segments)])
        self._add(segments)
        known = set(map(id, self._segments))
        for first, segment in zip(self._first_sentence, segments, strict=False):
            if id(segment) not in known:
                self._live[first + segment.gone_sentences()] = False
        self._segments = list(segments)
        self._shown = segments

    def _add(self, segments: list[Segment]) -> None:
        """Take in the sentences that are beyond those already known."""
        first = len(self._lengths)
        tokens, lengths = array("i"), array("i")
        for begin, segment in zip(self._first_sentence.tolist(), segments, strict=False):
            if begin + segment.record.sentences > first:
                self._index(segment, max(0, first - begin), tokens, lengths)
        if not lengths:
            return
        sentences = np.repeat(np.arange(first, first + len(lengths), dtype=np.int32), lengths)
        self._postings.append(_Postings.of(np.array(tokens, np.int32), sentences))
        while len(self._postings) > 1 and self._postings[-2].size < 2 * self._postings[-1].size:
            # Each is at least twice the next: few to look into, and a token is seldom moved.
            self._postings[-2:] = [self._postings[-2].with_newer(self._postings[-1])]
        self._lengths = np.concatenate([self._lengths, np.array(lengths, np.int32)])
        self._live = np.concatenate([self._live, np.ones(len(lengths), np.bool_)])

    def _index(self, segment: Segment, first: int, tokens: array[int], lengths: array[int]) -> None:
        """Append the token ids of every source from one on, and how many each has."""
        ids = self._vocabulary
        texts, offsets = segment.arrays["texts"], segment.offsets("text_offsets")[3 * first :]
        sources = zip(offsets[0:-1:3].tolist(), offsets[1::3].tolist(), strict=True)
        for sentence, (start, end) in enumerate(sources, first):
            try:
                source = texts[start:end].tobytes().decode("utf-8")
            except UnicodeDecodeError as error:
                raise segment.damaged("its texts are not UTF-8") from error
            if any(mark in source for mark in MARKS):
                source = self._seen(segment.pair(sentence))
            found = tokens_of(source)
            tokens.extend([ids.setdefault(token, len(ids)) for token in found])
            lengths.append(len(found))

    def _seen(self, pair: SegmentPair) -> str:
        return for_model(pair, self._store.manifest.accelerators).source

    # Searching --------------------------------------------------------------------------------------------------------

    def _search(self, text: str, at_least: int) -> Match | None:
        edit_distance = _edit_distance()
        ids = [self._vocabulary.get(token, -1) for token in tokens_of(text)]
        best, best_rank = None, (at_least, -1)
        for bound, number in self._candidates(ids, at_least):
            if bound < best_rank[0]:
                break
            if (bound, number) < best_rank:
                continue
            pair = self._pair(number)
            source = self._seen(pair)
            exact = plain(source) == plain(text)
            if exact:
                score = 100
            else:
                others = [self._vocabulary[token] for token in tokens_of(source)]
                longer = max(len(ids), len(others))
                most = (100 - best_rank[0]) * longer // 100  # beyond that it cannot win, and is not computed
                score = min(99, 100 * (longer - edit_distance(ids, others, score_cutoff=most)) // longer)
            if (score, number) > best_rank:
                best, best_rank = Match(pair.source, pair.target, pair.origin, score, exact), (score, number)
        return best

    def _candidates(self, ids: list[int], at_least: int) -> list[tuple[int, int]]:
        """(bound of its score, number) of each sentence that may reach `at_least`; highest first, then newest."""
        counts = Counter(token for token in ids if token >= 0)
        shared = [part.holding(token, times) for part in self._postings for token, times in counts.items()]
        if not shared:
            return []
        overlap = np.bincount(np.concatenate(shared), minlength=len(self._lengths))
        longer = np.maximum(self._lengths, len(ids))
        numbers = np.flatnonzero((100 * overlap >= at_least * longer) & self._live)
        bounds = 100 * overlap[numbers] // longer[numbers]
        order = np.lexsort((numbers, bounds))[::-1]
        return list(zip(bounds[order].tolist(), numbers[order].tolist(), strict=True))

    def _pair(self, number: int) -> SegmentPair:
        segment = int(np.searchsorted(self._first_sentence, number, side="right")) - 1
        return self._segments[segment].pair(number - int(self._first_sentence[segment]))


@dataclass(frozen=True, slots=True)
class _Postings:
    """The sentences of each token, named as often as they hold it.

    tokens (distinct,) int32: sorted
    offsets (distinct + 1,) int64: where the sentences of each token begin
    sentences (occurrences,) int32: ascending for each token
    """

    tokens: Array
    offsets: Array
    sentences: Array

    @classmethod
    def of(cls, tokens: Array, sentences: Array) -> _Postings:
        """From the token ids of sentences and their numbers, (occurrences,) each; the numbers ascend."""
        order = np.argsort(tokens, kind="stable")
        distinct, starts = np.unique(tokens[order], return_index=True)
        return cls(distinct, np.append(starts, len(tokens)), sentences[order])

    @property
    def size(self) -> int:
        return len(self.sentences)

    def with_newer(self, newer: _Postings) -> _Postings:
        """Both in one; the numbers in `newer` are higher than all here."""
        tokens = [np.repeat(part.tokens, np.diff(part.offsets)) for part in (self, newer)]
        return _Postings.of(np.concatenate(tokens), np.concatenate([self.sentences, newer.sentences]))

    def holding(self, token: int, times: int) -> Array:
        """The sentences that hold a token, each as often as it does, but at most so many `times`."""
        place = int(np.searchsorted(self.tokens, token))
        if place == len(self.tokens) or self.tokens[place] != token:
            return self.sentences[:0]
        found = self.sentences[self.offsets[place] : self.offsets[place + 1]]
        kept = np.ones(len(found), np.bool_)
        kept[times:] = found[times:] != found[:-times]
        return found[kept]


def _edit_distance() -> Callable[..., int]:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise MissingDependencyError("rapidfuzz", "finding the closest segment of a memory", "matches") from error
    return Levenshtein.distance
