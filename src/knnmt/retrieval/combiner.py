"""Combiners: what the neighbours of a row say about their own weights, and about λ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.config import RetrievalConfig
from knnmt.retrieval.distribution import log_weights
from knnmt.retrieval.neighbours import Neighbours


class Combiner(Protocol):
    """Looks at neighbours after the search."""

    def __call__(self, neighbours: Neighbours, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Log-weights (rows, k) whose exponentials sum to 1, and log λ (rows,); -inf for rows without neighbours.

        counts (rows, k): how many entries each neighbour stands for after merging, or None where nothing was merged
        """


@dataclass(frozen=True, slots=True)
class DistanceCombiner:
    """Equation 2 for the weights, merge counts as their logarithms; λ fixed, or fading with distance.

    With `config.distance_scale` s and `config.distance_width` w, λ is the interpolation weight times
    sigmoid((s - d) / w), d the Euclidean distance of the nearest entry: the memory speaks where it knows something
    alike, and the model alone where it does not.
    """

    config: RetrievalConfig

    def __call__(self, neighbours: Neighbours, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        config = self.config
        log_counts = counts.log() if counts is not None and config.use_counts else None
        weights = log_weights(neighbours.distances_sq, config.temperature, log_counts)
        nearest_sq = neighbours.distances_sq[:, 0]
        most = torch.full_like(nearest_sq, config.interpolation_weight).log()
        if config.distance_scale is not None:
            distance = nearest_sq.sqrt()  # infinite where there is none: then λ is 0
            most = most + functional.logsigmoid((config.distance_scale - distance) / config.distance_width)
        return weights, most.masked_fill(nearest_sq.isinf(), float("-inf"))
