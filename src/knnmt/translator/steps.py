"""The retrievals of each step of a translation, as tensors for plots and sums. `Evidence` has the same for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from knnmt.decoding.hypothesis import Hypothesis
from knnmt.retrieval.plain import Retrieved


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The neighbours of the tokens of a translation: row i is token i, column j is its j-th nearest neighbour.

    All tensors are on the CPU. For a missing neighbour, id and token are -1, the distance is inf and the weight is 0.

    ids: (tokens, k), entry ids of the store
    tokens: (tokens, k), the target tokens that the neighbours stand for
    distances: (tokens, k), Euclidean
    weights: (tokens, k), their shares of p_kNN, which sum to 1 if there is a neighbour
    interpolation_weights: (tokens,), λ
    model_probabilities: (tokens,), the model's own probability of the chosen token
    cached: (tokens,), whether the neighbours come from an earlier step
    forced: (tokens,), whether only one token was possible and nothing was retrieved
    """

    ids: Tensor
    tokens: Tensor
    distances: Tensor
    weights: Tensor
    interpolation_weights: Tensor
    model_probabilities: Tensor
    cached: Tensor
    forced: Tensor

    def __repr__(self) -> str:
        count, k = self.ids.shape
        return f"<Steps of {count} tokens, k {k}>"


def steps_of(hypothesis: Hypothesis, recorded: Sequence[Retrieved | None], k: int) -> Steps:
    """The steps of a hypothesis, from those of its search; a batch may have more neighbours than its k."""
    count = len(hypothesis.tokens)
    steps = Steps(
        ids=torch.full((count, k), -1),
        tokens=torch.full((count, k), -1),
        distances=torch.full((count, k), float("inf")),
        weights=torch.zeros(count, k),
        interpolation_weights=torch.zeros(count),
        model_probabilities=torch.tensor(hypothesis.base).exp(),
        cached=torch.zeros(count, dtype=torch.bool),
        forced=torch.tensor([step is None for step in recorded[:count]]),
    )
    for place, (row, step) in enumerate(zip(hypothesis.rows, recorded, strict=False)):
        if step is None:
            continue
        found = step.neighbours.ids[row, :k].cpu()
        there = (found >= 0).nonzero()[:, 0]
        steps.ids[place, there] = found[there]
        for mine, theirs in (
            (steps.tokens, step.neighbours.tokens[row]),
            (steps.distances, step.neighbours.distances_sq[row].sqrt()),
            (steps.weights, step.weights[row].exp()),
        ):
            mine[place, there] = theirs[:k].cpu()[there].to(mine.dtype)
        steps.interpolation_weights[place] = float(step.log_lambda[row].exp())
        steps.cached[place] = bool(step.hits[row])
    return steps


def joined(parts: Sequence[Steps]) -> Steps:
    """The steps of successive segments, all with the same k."""
    return Steps(*(torch.cat([getattr(part, each.name) for part in parts]) for each in fields(Steps)))
