"""The likelihood of text under equation 3, for whole grids of settings, from one pass over the text.

A position has the model's own probability of its token, and neighbours that have that token or not. k, T, λ and fading
do not change these, so another setting costs only a few sums. A loss is the mean of -log p per token, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.config import Fading, RetrievalConfig
from knnmt.engine.base import Engine, State
from knnmt.retrieval.combiner import log_fading
from knnmt.retrieval.distribution import log_weights
from knnmt.retrieval.neighbours import LogCounts
from knnmt.retrieval.step import SentenceSoFar

_MOST_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_SCALES = (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8)  # times the median nearest distance
_WIDTHS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_USUAL_SENTENCES = 0.95  # the part of the sentences of its own kind that a store trusts itself with
_EQUALLY_FAR = 1e-3  # the part of a squared distance that does not make a difference
_SENTENCE_WIDTH = 0.1  # times the median nearest distance
_KEPT_GAIN = 0.5  # the part of the best fit's gain over a fixed λ that a more cautious fit must keep


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of a text whose token is known, with their neighbours.

    base: (rows,) float64, the model's own probability of the token
    distances_sq: (rows, k), nearest first, infinite if there is no neighbour
    matches: (rows, k) bool, whether the neighbour has that token
    sentences: (rows,); the positions of a sentence are together, in order
    log_counts: of how many entries each neighbour stands for
    """

    base: Tensor
    distances_sq: Tensor
    matches: Tensor
    sentences: Tensor
    log_counts: LogCounts = (None, None)

    def __len__(self) -> int:
        return len(self.base)

    def first(self, k: int) -> Positions:
        """These positions with the k nearest neighbours only."""
        counts, repeats = (None if each is None else each[:, :k] for each in self.log_counts)
        near, matches = self.distances_sq[:, :k], self.matches[:, :k]
        return replace(self, distances_sq=near, matches=matches, log_counts=(counts, repeats))

    @property
    def nearest(self) -> Tensor:
        """The Euclidean distance to the nearest neighbour, (rows,)."""
        return self.distances_sq[:, 0].sqrt()

    @property
    def so_far(self) -> SentenceSoFar:
        """What a combiner knows of each position's sentence, (rows,) each."""
        return so_far(self.nearest, self.sentences)

    def knn(self, temperature: float, use_counts: bool = True) -> Tensor:
        """p_kNN of each position's token, (rows,) float64."""
        weights = log_weights(self.distances_sq, temperature, self.log_counts[0 if use_counts else 1])
        return (weights.double().exp() * self.matches).sum(1)

    def loss_with(self, knn: Tensor, weights: Tensor) -> float:
        """The loss with a p_kNN and a λ of each position, (rows,) both; λ may also be one for all, (1,)."""
        return float(losses(knn, self.base, weights[None]))

    def loss(self, config: RetrievalConfig | None) -> float:
        """The loss with these settings, without their cache; None for the model alone."""
        if config is None:
            return self.loss_with(self.base, torch.zeros(1))
        nearest = self.nearest
        weight = torch.full_like(nearest, config.interpolation_weight).masked_fill(nearest.isinf(), 0)
        if config.fading is not None:
            weight = weight * log_fading(config.fading, nearest, self.so_far).exp()
        knn = self.first(config.k).knn(config.squared_temperature, config.use_counts)
        return self.loss_with(knn, weight)

    def best_fixed(self, temperatures: Sequence[float], weights: Sequence[float]) -> list[tuple[float, float, float]]:
        """(loss, T, λ) of the best of these λ for each temperature, in their order."""
        column = torch.tensor(weights)[:, None]
        best = []
        for temperature in temperatures:
            losses_each = losses(self.knn(temperature), self.base, column)
            place = int(losses_each.argmin())
            best.append((float(losses_each[place]), temperature, weights[place]))
        return best


def losses(knn: Tensor, base: Tensor, weights: Tensor) -> Tensor:
    """The losses of several λ: knn and base (rows,) probabilities, weights (settings, rows or 1) -> (settings,)."""
    mixed = torch.addcmul(base, weights.to(base), knn - base)
    return -mixed.clamp(min=1e-30).log().mean(-1)


class FadingGrid:
    """Many ways for λ to fade, scaled to the distances of a text, with their results for every position."""

    def __init__(self, positions: Positions) -> None:
        nearest = positions.nearest
        sentence = positions.so_far
        median = max(float(nearest.median()), 1e-6)
        sentence_scale = float(torch.quantile(sentence.distance, _USUAL_SENTENCES))
        self._base = positions.base
        self._fadings = [
            Fading(scale * median, width * median, sentence_scale, _SENTENCE_WIDTH * median)
            for scale, width in product(_SCALES, _WIDTHS)
        ]
        self._factors = torch.stack([log_fading(each, nearest, sentence).exp() for each in self._fadings])
        self._trusts = [
            float(functional.sigmoid((each.scale - 1.5 * nearest) / each.width).mean()) for each in self._fadings
        ]

    def best_loss(self, knn: Tensor) -> float:
        """The smallest loss in the grid, for p_kNN (rows,)."""
        return min(loss for loss, *_ in self._tried(knn))

    def cautious(self, knn: Tensor, fixed_loss: float, most_loss: float = math.inf) -> tuple[float, float, Fading]:
        """(loss, weight, fading): among those that keep enough of the best gain over a fixed λ, the one with the
        smallest λ if all distances were half as large again. Its loss is at most `most_loss`, if any of them allows it.
        """
        tried = self._tried(knn)
        best_loss = min(loss for loss, *_ in tried)
        enough = max(best_loss, _KEPT_GAIN * best_loss + (1 - _KEPT_GAIN) * fixed_loss)
        if best_loss <= most_loss:
            enough = min(enough, most_loss)
        loss, _, most, fading = min((each for each in tried if each[0] <= enough), key=lambda each: each[1])
        return loss, most, fading

    def _tried(self, knn: Tensor) -> list[tuple[float, float, float, Fading]]:
        """(loss, trust far away, weight, fading) of the whole grid."""
        tried = []
        for most in _MOST_WEIGHTS:
            losses_each = losses(knn, self._base, most * self._factors).tolist()
            trusts = [most * trust for trust in self._trusts]
            tried += [(*each, most, fading) for *each, fading in zip(losses_each, trusts, self._fadings, strict=True)]
        return tried


def so_far(nearest: Tensor, sentences: Tensor) -> SentenceSoFar:
    """The means over the steps of each sentence so far; steps that found nothing (infinite distance) do not count.

    nearest and sentences (rows,); the steps of a sentence are together, in order
    """
    first = torch.ones_like(sentences, dtype=torch.bool)
    first[1:] = sentences[1:] != sentences[:-1]
    begin = first.nonzero()[:, 0][first.cumsum(0) - 1]
    present = ~nearest.isinf()
    distances = nearest.double().masked_fill(~present, 0)

    def within(values: Tensor) -> Tensor:
        sums = values.cumsum(0)
        return sums - (sums - values)[begin]

    steps = within(present.double()).clamp(min=1)
    return SentenceSoFar((within(distances) / steps).float(), steps.float())


def spread(distances_sq: Tensor) -> float:
    """The median of how much farther the k-th neighbour is than the nearest: the scale for a temperature.

    Rows whose neighbours are all equally far are ignored: these neighbours weigh the same at any temperature.
    """
    furthest = distances_sq.masked_fill(distances_sq.isinf(), 0).amax(1)
    beyond = furthest - distances_sq[:, 0]
    telling = beyond[beyond > _EQUALLY_FAR * furthest]
    return max(float((telling if len(telling) else furthest).median()), 1e-3)


def model_probabilities(engine: Engine[State], states: Tensor, tokens: Tensor) -> Tensor:
    """The model's own probability of a token after each decoder state, (rows,) float64."""
    parts = []
    with torch.no_grad():
        for some, wanted in zip(torch.split(states, 512), torch.split(tokens, 512), strict=True):
            scores = engine.log_probabilities(some.to(engine.device, engine.dtype))
            parts.append(scores.cpu().gather(1, wanted[:, None])[:, 0])
    return torch.cat(parts).double().exp()
