"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation as token ids.

    tokens: generated ids, the end token included where there is one
    score: sum of log-probabilities over length ** length_penalty
    """

    tokens: tuple[int, ...]
    score: float
