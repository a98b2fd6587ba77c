"""What a search returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation as token ids.

    tokens: generated ids, the end token included where there is one
    score: sum of log-probabilities over length ** length_penalty
    rows, base: where evidence is recorded, for each token the row of its step that it was chosen from, and the model's
        own log-probability of it
    drafted: where tokens are drafted from the memory, whether each came in one pass with the token before it
    """

    tokens: tuple[int, ...]
    score: float
    rows: tuple[int, ...] = ()
    base: tuple[float, ...] = ()
    drafted: tuple[bool, ...] = ()


Found = Callable[[int, list[Hypothesis]], None]
"""Is called with the number of a sentence and its hypotheses as soon as it is done, while others are decoded."""

Growing = Callable[[Callable[[], dict[int, list[int]]]], None]
"""Is called now and then while sentences are decoded, with what gives the best tokens so far of each, by its number."""


def unheard(_sentence: int, _hypotheses: list[Hypothesis]) -> None:
    """Wait for all."""
