"""The results of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation as token ids.

    tokens: generated ids, including the end token if there is one
    score: sum of log-probabilities over length ** length_penalty
    rows, base: if evidence is recorded, for each token the row of its step that it was chosen from, and the model's own
        log-probability of it
    drafted: if tokens are drafted from the memory, whether each came in one pass with the token before it
    """

    tokens: tuple[int, ...]
    score: float
    rows: tuple[int, ...] = ()
    base: tuple[float, ...] = ()
    drafted: tuple[bool, ...] = ()

    def scored(self, score: float) -> Hypothesis:
        """The same with another score. Far faster than `dataclasses.replace`, for several in every sentence."""
        return Hypothesis(self.tokens, score, self.rows, self.base, self.drafted)


Found = Callable[[int, list[Hypothesis]], None]
"""Is called with the number of a sentence and its hypotheses when it is done, while others are still decoded."""

Growing = Callable[[Callable[[], dict[int, list[int]]]], None]
"""Is called from time to time during decoding, with a function that returns the best tokens of each sentence so far."""


def unheard(_sentence: int, _hypotheses: list[Hypothesis]) -> None:
    """Ignore results until all are done."""


Begun = Callable[[], None]
"""Is called once, when a device has the first step of a search to compute, so that the host may do other work."""


def unnoticed() -> None:
    """Do nothing meanwhile."""
