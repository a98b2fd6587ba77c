"""SK-MT (Dai et al. 2023), for comparison with search by segment: 16 segments by BM25 alone, and λ by the nearest
distance.

λ = ReLU(1 - d/T), where d is the Euclidean distance of the nearest entry. T is also that of equation 2, and is tuned
with k.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from knnmt import Covering, Neighbours, Positions, RetrievalConfig, SourceIndex, Step, log_weights, squared_temperatures
from knnmt_lab.reproduction.grid import first_with_most

SEGMENTS = 16
MAX_WEIGHT = 0.99  # λ stays below 1
_KS = (1, 2, 4, 8, 16)
_K1, _B = 1.2, 0.75


class PlainBM25(SourceIndex):
    """Chooses the sentences with the highest BM25 over all tokens of a source, whatever they cover."""

    @cached_property
    def _lengths(self) -> NDArray[Any]:
        parts = [np.diff(part["source_offsets"]) for part in self._parts]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def choose(self, sources: Sequence[Sequence[int]], count: int) -> Covering:
        """The best sentences of each source; the first of the store if some are equal."""
        chosen = np.full((len(sources), count), -1, np.int64)
        lengths = self._lengths / max(1.0, float(self._lengths.mean()))
        for row, source in zip(chosen, sources, strict=True):
            scores = np.zeros(self.sentences)
            for token, idf in self.statistics.idf(source).items():
                held, times = np.unique(self._sentences_with(token), return_counts=True)
                scores[held] += idf * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * lengths[held]))
            best = np.lexsort((np.arange(self.sentences), -scores))[:count]
            best = best[scores[best] > 0]
            row[: len(best)] = best
        nothing = np.zeros(len(sources), np.float32)
        return Covering(chosen, nothing, nothing)


class NearestDistance:
    """Equation 2's weights, with λ = ReLU(1 - d/T)."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def signature(self) -> str:
        """The part of a published score's signature that describes it and its choice of segments."""
        return f"sk-mt/bm25/{self._temperature:.4g}"

    def __call__(self, _step: Step, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        """Log-weights (rows, k) and log λ (rows,)."""
        distances_sq = neighbours.distances_sq
        weight = nearest_weight(distances_sq[:, 0].sqrt(), self._temperature)
        return log_weights(distances_sq, self._temperature), weight.log()


def nearest_weight(nearest: Tensor, temperature: float) -> Tensor:
    """λ of rows by the Euclidean distance of their nearest entries; 0 if there is none."""
    return (1 - nearest / temperature).clamp(0, MAX_WEIGHT)


def sk_mt_settings(positions: Positions) -> tuple[float, RetrievalConfig]:
    """The loss and the smallest k that has nearly all of the best gain, with its T."""
    found: list[tuple[float, int, float]] = []
    for k in [k for k in _KS if k <= positions.distances_sq.shape[1]]:
        near = positions.first(k)
        tried = []
        for temperature in squared_temperatures(positions):
            weight = nearest_weight(positions.nearest, temperature)
            tried.append((near.loss_with(near.knn(temperature), weight), k, temperature))
        found.append(min(tried))
    loss, k, temperature = first_with_most(found, lambda each: each[0], positions.loss(None))
    return loss, RetrievalConfig(k, MAX_WEIGHT, temperature, segments=SEGMENTS)
