"""The results of a search, while it runs and at its end."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knnmt.config import DecodingConfig

NEVER = float("-inf")
Numbers = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation as token ids.

    tokens: generated ids, including the end token if there is one
    score: sum of log-probabilities over length ** length_penalty
    rows, base: if evidence is recorded, for each token the row of its step that it was chosen from, and the model's own
        log-probability of it
    """

    tokens: tuple[int, ...]
    score: float
    rows: tuple[int, ...] = ()
    base: tuple[float, ...] = ()

    def scored(self, score: float) -> Hypothesis:
        """The same with another score. Far faster than `dataclasses.replace`, for several in every sentence."""
        return Hypothesis(self.tokens, score, self.rows, self.base)


class Finished:
    """The best finished hypotheses of one sentence, at most `wanted` of them, best first."""

    def __init__(self, config: DecodingConfig, wanted: int) -> None:
        self._config, self._wanted = config, wanted
        self.hypotheses: list[Hypothesis] = []

    @property
    def least(self) -> float:
        """The score that running hypotheses must be able to beat. Infinite if they need not go on whatever comes."""
        if len(self.hypotheses) < self._wanted:
            return NEVER
        return math.inf if self._config.early_stopping is True else self.hypotheses[-1].score

    def add(self, ended: Hypothesis) -> None:
        """ended: with the sum of its log-probabilities as score"""
        if not math.isfinite(ended.score):  # made of forbidden tokens only, if nothing else was left
            return
        score = ended.score / len(ended.tokens) ** self._config.length_penalty
        if len(self.hypotheses) == self._wanted and score <= self.hypotheses[-1].score:
            return
        insort(self.hypotheses, ended.scored(score), key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self._wanted :]


class Results:
    """The finished hypotheses of all sentences of a search, and when the search of a sentence is over.

    wanted: how many hypotheses are enough to stop, if no running one can beat the worst of them: `beam` of them as in
        `transformers` by default
    least: (sentences,), `Finished.least` of each
    """

    def __init__(self, configs: Sequence[DecodingConfig], wanted: int | None = None) -> None:
        self._wanted = wanted
        self._finished: list[Finished] = []
        self._n_best: list[int] = []
        self._max_tokens, self._hoped = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._penalties, self.least = np.zeros(0), np.zeros(0)
        self.extend(configs)

    def extend(self, configs: Sequence[DecodingConfig]) -> None:
        """Further sentences join the search, with numbers that follow those of the others."""
        self._finished += [Finished(config, self._wanted or config.beam) for config in configs]
        self._n_best += [config.n_best for config in configs]
        self._max_tokens = np.append(self._max_tokens, [config.max_tokens for config in configs])
        self._hoped = np.append(self._hoped, [hoped_length(config) for config in configs])
        self._penalties = np.append(self._penalties, [config.length_penalty for config in configs])
        self.least = np.append(self.least, np.full(len(configs), NEVER))

    def add(self, sentence: int, ended: Hypothesis) -> None:
        """ended: with the sum of its log-probabilities as score"""
        finished = self._finished[sentence]
        finished.add(ended)
        self.least[sentence] = finished.least

    def best(self, sentence: int) -> list[Hypothesis]:
        """As many hypotheses as the search was asked for, best first."""
        return self._finished[sentence].hypotheses[: self._n_best[sentence]]

    def closed(self, sentences: Numbers, leaders: Scores, lengths: Numbers) -> NDArray[np.bool_]:
        """Which of these sentences need no more steps.

        leaders: the best score of the running hypotheses of each; lengths: of these
        """
        hoped = np.where(self._hoped[sentences] > 0, self._hoped[sentences], np.maximum(lengths, 1))
        reachable = leaders / hoped ** self._penalties[sentences]
        impossible = leaders == NEVER  # and so is whatever follows
        too_long = lengths >= self._max_tokens[sentences]
        found: NDArray[np.bool_] = impossible | too_long | (reachable <= self.least[sentences])
        return found


def hoped_length(config: DecodingConfig) -> int:
    """The length of which a running hypothesis may hope for the score; 0 for its own."""
    return config.max_tokens if config.early_stopping == "never" and config.length_penalty > 0 else 0


OnSentence = Callable[[int, list[Hypothesis]], None]
"""Is called with the number of a sentence and its hypotheses when it is done, while others are still decoded."""

OnPartial = Callable[[Callable[[], dict[int, list[int]]]], None]
"""Is called after every step, with a function that returns the best tokens of each sentence so far."""


OnStarted = Callable[[], None]
"""Is called once, when a device has the first step of a search to compute, so that the host may do other work."""
