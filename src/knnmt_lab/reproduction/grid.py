"""The paper's grid of k and λ, and the choice of the smallest k that is good enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

KS = (8, 16, 32, 64)
WEIGHTS = (0.5, 0.6, 0.7, 0.8)
_MIN_PART_OF_GAIN = 0.95  # of the gain over the model alone: a larger k makes every step more expensive
_Candidate = TypeVar("_Candidate")


def first_with_most(tried: Sequence[_Candidate], loss: Callable[[_Candidate], float], alone: float) -> _Candidate:
    """The first candidate that has nearly all of the best gain over the model alone."""
    best = min(map(loss, tried))
    enough = best + (1 - _MIN_PART_OF_GAIN) * max(0.0, alone - best)
    return next(each for each in tried if loss(each) <= enough)
