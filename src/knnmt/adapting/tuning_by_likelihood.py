"""The best k, T and λ, fixed or fading, for development text, by its likelihood under equation 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from knnmt.adapting.tuning_config import KS, WEIGHTS
from knnmt.calibration.estimates import DEFAULT_K
from knnmt.calibration.likelihood import FadingGrid, Positions, spread
from knnmt.config import FastConfig, RetrievalConfig, SearchScope
from knnmt.progress import ignore

_TEMPERATURES = tuple(np.geomspace(0.1, 10, 21).tolist())  # times the spread of the neighbours' distances
_FADED = 3  # temperatures per k at which fading λ are tried: the best with a fixed λ
_MIN_PART_OF_GAIN = 0.95  # of the gain over the model alone: a larger k makes every step more expensive
_Candidate = TypeVar("_Candidate")


@dataclass(frozen=True, slots=True)
class Tried:
    """The best settings with one k, for fixed λ and fading λ, and their losses in nats per token."""

    k: int
    fixed: RetrievalConfig
    fixed_loss: float
    fading: RetrievalConfig
    fading_loss: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning.

    alone: loss of the model alone
    before: loss of the earlier settings, infinite if there were none
    tried: the best for each k
    """

    alone: float
    tried: tuple[Tried, ...]
    before: float = math.inf

    @property
    def fading(self) -> Tried:
        """Among settings with fading λ, the smallest k that has nearly all of the best gain, and at most the loss of
        the earlier settings, if there is such a k.
        """
        return self._smallest(lambda each: each.fading_loss, self.before)

    @property
    def fixed(self) -> Tried:
        """Among settings with fixed λ, the smallest k that has nearly all of the best gain."""
        return self._smallest(lambda each: each.fixed_loss)

    def _smallest(self, loss: Callable[[Tried], float], most_loss: float = math.inf) -> Tried:
        return first_with_most(self.tried, loss, self.alone, most_loss)


def first_with_most(
    tried: Sequence[_Candidate], loss: Callable[[_Candidate], float], alone: float, most_loss: float = math.inf
) -> _Candidate:
    """The first candidate, from the cheapest on, that has nearly all of the best gain over the model alone, and at most
    `most_loss`, if there is one.
    """
    best = min(map(loss, tried))
    enough = best + (1 - _MIN_PART_OF_GAIN) * max(0.0, alone - best)
    if best <= most_loss:
        enough = min(enough, most_loss)
    return next(each for each in tried if loss(each) <= enough)


@dataclass(frozen=True, slots=True)
class Compared:
    """Losses of the earlier settings and of the tuned ones, (before, tuned).

    tuning: on the text that they were tuned on
    reported: on other text, or None
    """

    tuning: tuple[float, float]
    reported: tuple[float, float] | None

    @classmethod
    def of(
        cls, before: RetrievalConfig, tuned: RetrievalConfig, tuning: Positions, reported: Positions | None
    ) -> Compared:
        """Compare by the results for both texts."""

        def losses(text: Positions) -> tuple[float, float]:
            return text.loss(before), text.loss(tuned)

        return cls(losses(tuning), None if reported is None else losses(reported))

    @property
    def improves(self) -> bool:
        """Whether the tuned settings have a smaller loss on the text for tuning, and no larger loss on the other."""
        return self.tuning[1] < self.tuning[0] and (self.reported is None or self.reported[1] <= self.reported[0])

    @property
    def in_words(self) -> str:
        """Both losses on each text."""
        on_reported = ""
        if self.reported is not None:
            on_reported = f"; on the reported pairs {self.reported[0]:.4f} and {self.reported[1]:.4f}"
        return f"loss {self.tuning[0]:.4f} before, {self.tuning[1]:.4f} tuned, on the tuning pairs{on_reported}"


def tune_positions(
    positions: Positions,
    ks: Sequence[int] = KS,
    weights: Sequence[float] = WEIGHTS,
    on_tried: Callable[[Tried], None] = ignore,
    scope: SearchScope = None,
    before: RetrievalConfig | None = None,
) -> Tuned:
    """Try every k, T and fixed λ, and ways to fade; if a store has fewer entries than every k, all are used.

    scope: the entries in which the positions' neighbours were found
    on_tried: gets the best for each k
    before: the earlier settings; a smaller k or a more cautious λ must not lose more than these
    """
    before_loss = math.inf if before is None else positions.loss(before)
    fast, segments = (scope, None) if isinstance(scope, FastConfig) else (None, scope)
    usual = RetrievalConfig(k=1, interpolation_weight=0.0, temperature=1.0, fast=fast, segments=segments)
    unit = usual.squared_temperature  # the squared distance that T = 1 means
    width = positions.distances_sq.shape[1]
    temperatures = squared_temperatures(positions)
    grid = FadingGrid(positions)
    tried = []
    for k in [k for k in sorted(ks) if k <= width] or [width]:
        near = positions.first(k)
        best_each = near.best_fixed(temperatures, weights)
        fixed_loss, temperature, weight = min(best_each)
        faded = min(sorted(best_each)[:_FADED], key=lambda each: grid.best_loss(near.knn(each[1])))
        loss, most, fading = grid.cautious(near.knn(faded[1]), fixed_loss, before_loss)
        fixed = replace(usual, k=k, interpolation_weight=weight, temperature=temperature / unit)
        faded_most = replace(fixed, interpolation_weight=most, temperature=faded[1] / unit, fading=fading)
        tried.append(Tried(k, fixed, fixed_loss, faded_most, loss))
        on_tried(tried[-1])
    return Tuned(positions.loss(None), tuple(tried), before_loss)


def squared_temperatures(positions: Positions) -> list[float]:
    """The temperatures to try: squared distances around the spread of the neighbours' distances."""
    scale = spread(positions.first(DEFAULT_K).distances_sq)
    return [scale * each for each in _TEMPERATURES]
