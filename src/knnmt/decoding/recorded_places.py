"""What the host knows of the sentences that `knnmt.decoding.recorded_drafts` decodes.

A GPU computes a step in a sixth of a millisecond, and the host must be faster. So it keeps what steps wrote, looks only
at what it needs for the next step, and puts a translation together when its sentence is done.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import numpy.typing as npt

from knnmt.config import DecodingConfig
from knnmt.decoding.arena import MAX_TURNS
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.recorded_policy import likely_ends
from knnmt.decoding.recorded_sentences import Sentence

TAKEN, CHANCE, ENDS, TOKENS, GAINS, NUMBERS = 0, 1, 2, 3, 3 + MAX_TURNS, 3 + 2 * MAX_TURNS
"""The columns of a step's result, for each sentence:

the number of its tokens that count (0 if it was done before); λ at the beginning of the next draft (a float, 0 if
nothing is drafted); after how many tokens of that draft the sentence would end, -1 if it ended in this step; the tokens
of the step; what each adds to the score (floats)
"""
_USUAL, _MEMORY = 0.5, 0.3  # the chance before anything is known, and how much the last step or sentence counts for it


class Places:
    """The sentences at the places of a step. The device may be one step ahead.

    sentences: None where a place is free; running: how many are not
    source: source positions of the longest running sentence, including padding
    """

    def __init__(self, count: int, config: DecodingConfig, end: int) -> None:
        self._config, self._end = config, end
        self.sentences: list[Sentence | None] = [None] * count
        self.running = self.source = 0
        self._sources = [0] * count
        self._told: list[int | None] = [None] * count
        self._first = [0] * count  # result of each sentence
        self._lengths = np.zeros(count, np.int64)
        self._runs = np.zeros(count, np.bool_)
        self._chances, self._ends = np.zeros(count, np.float32), np.zeros(count, np.int32)  # of the next draft
        self._usual = np.zeros(count, np.float32)  # what the chance was on average, of late
        self._usual_before = _USUAL  # in earlier sentences
        self._results = np.zeros((64, count, NUMBERS), np.int32)
        self._turns = np.zeros(64, np.int64)
        self._read = 0  # results, as far as they are kept

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def free(self) -> list[int]:
        return [place for place, each in enumerate(self.sentences) if each is None]

    @property
    def longest(self) -> int:
        """The tokens of the longest sentence."""
        return int(self._lengths.max())

    @property
    def hopes(self) -> npt.NDArray[np.float32]:
        """(running,), the λ that is expected for each sentence, because the device is one step ahead of the host."""
        return np.maximum(self._chances, self._usual)[self._runs]

    def likely_end(self, turns: int) -> bool:
        """Whether a step of so many tokens probably ends all sentences."""
        return all(
            each is None or likely_ends(float(self._chances[place]), int(self._ends[place]), turns)
            for place, each in enumerate(self.sentences)
        )

    def take(self, place: int, sentence: Sentence, source: int, under_way: int) -> None:
        """A new sentence takes a free place. under_way: steps whose results are not read yet"""
        self.sentences[place], self._sources[place], self._told[place] = sentence, source, None
        self._first[place] = self._read + under_way
        self._chances[place] = 1 if sentence.draft else 0
        self._ends[place], self._usual[place] = MAX_TURNS, self._usual_before
        self._runs[place] = True
        self.running += 1
        self.source = max(self.source, source)

    def tell(self, place: int, token: int) -> bool:
        """A sentence begins with a token that it was told. Returns whether it is done."""
        self._told[place] = token
        self._lengths[place] = 1
        return token == self._end or self._config.max_tokens == 1

    def read(self, result: npt.NDArray[np.int32], turns: int) -> list[int]:
        """Read the result of the next step. Returns the places of sentences that it ended."""
        if self._read == len(self._results):
            self._make_room()
        self._results[self._read], self._turns[self._read] = result, turns
        self._read += 1
        self._lengths += result[:, TAKEN]
        self._chances[:] = result[:, CHANCE].view(np.float32)
        self._ends[:] = result[:, ENDS]
        self._usual += _MEMORY * (self._chances - self._usual)
        ended: list[int] = np.flatnonzero(self._ends < 0).tolist()
        return ended

    def _make_room(self) -> None:
        """Forget the results that no sentence needs, or make room for more."""
        needed = [first for first, each in zip(self._first, self.sentences, strict=True) if each is not None]
        oldest = min(self._read, *needed)
        if oldest < self._read // 2:
            more = ((0, self._read), (0, 0), (0, 0))
            self._results, self._turns = np.pad(self._results, more), np.pad(self._turns, more[0])
            return
        left = self._read - oldest
        self._results[:left], self._turns[:left] = self._results[oldest:], self._turns[oldest:]
        self._first = [first - oldest for first in self._first]
        self._read = left

    def leave(self, place: int) -> tuple[Sentence, list[Hypothesis]]:
        """A sentence is done: count what it did, and return its translation, if there is one."""
        sentence, told, config = self.sentences[place], self._told[place], self._config
        assert sentence is not None  # noqa: S101 - it is done now
        results = self._results[self._first[place] : self._read, place]
        turns = self._turns[self._first[place] : self._read].tolist()
        tokens, in_one_go = ([], []) if told is None else ([told], [False])
        drafts: list[int] = []
        score, gain, accepted = 0.0, 0.0, 0
        chance = len(sentence.draft)  # later the bits of a float, as a whole number of the same sign
        for result, gains, count in zip(
            results.tolist(), results[:, GAINS:].view(np.float32).tolist(), turns, strict=True
        ):
            taken = result[TAKEN]
            tokens += result[TOKENS : TOKENS + taken]
            in_one_go += [False, *[True] * (taken - 1)]
            gain = gains[taken - 1]
            score += sum(gains[:taken])
            if chance > 0 and count > 1:
                drafts.append(count - 1)
                accepted += taken - 1
            chance = result[CHANCE]
        rows = len(tokens) - (told is not None)
        rows -= len(tokens) == config.max_tokens and config.forced_last_token is not None  # nothing is searched for it
        statistics = sentence.batch.retrieval.statistics
        if rows > 0:
            statistics.count(1, 1, 0, first=True)
            statistics.count(rows - 1, rows - 1, 0, first=False)
        statistics.count_drafts(drafts, accepted)
        self._free(place)
        if not isfinite(gain):  # nothing could follow
            return sentence, []
        score /= len(tokens) ** config.length_penalty
        return sentence, [Hypothesis(tuple(tokens), score, drafted=tuple(in_one_go))]

    def _free(self, place: int) -> None:
        self._usual_before += _MEMORY * (float(self._usual[place]) - self._usual_before)
        self.sentences[place], self._runs[place] = None, False
        self._sources[place] = self._lengths[place] = 0
        self.running -= 1
        self.source = max(self._sources)

    def keep(self, places: list[int], count: int) -> None:
        """The sentences at these places continue at the first ones of fewer places; the rest is free."""
        rows = [*places, *self.free][:count]
        self.sentences = [self.sentences[row] for row in rows]
        self._sources, self._first = [self._sources[row] for row in rows], [self._first[row] for row in rows]
        self._told = [self._told[row] for row in rows]
        self._runs, self._lengths, self._results = self._runs[rows], self._lengths[rows], self._results[:, rows].copy()
        self._chances, self._ends, self._usual = self._chances[rows], self._ends[rows], self._usual[rows]
