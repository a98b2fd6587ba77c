"""Equations 2 and 3: from neighbours to p_kNN, and its mixture with the model's distribution. Both are sparse.

    p_kNN(y) ∝ Σ over neighbours with token y of exp(-d² / T)                       (2)
    p(y)     = λ p_kNN(y) + (1 - λ) p_NMT(y)                                        (3)

Only the k tokens of a row's neighbours change. For every other token, equation 3 is the same factor 1 - λ, whose
logarithm is an offset to add to the row's score.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MAX_WEIGHT = 1 - 2**-24  # the largest λ below 1: at 1 the offset would be infinite


def log_weights(distances_sq: Tensor, temperature: float | Tensor, log_counts: Tensor | None = None) -> Tensor:
    """The logarithms of the neighbours' shares of p_kNN, (rows, k); -inf if there is no neighbour.

    distances_sq (rows, k), infinite if there is none; temperature a number or (rows, 1); log_counts (rows, k):
    logarithms of how many entries each neighbour stands for after merging
    """
    distances_sq = distances_sq.float()
    missing = distances_sq.isinf()
    # Relative to the nearest, so that in a row of far neighbours at least one keeps some weight.
    logits = (distances_sq.amin(-1, keepdim=True) - distances_sq) / temperature
    if log_counts is not None:
        logits = logits + log_counts
    return torch.log_softmax(logits.masked_fill(missing, -1e30), dim=-1).masked_fill(missing, float("-inf"))


def token_log_probabilities(tokens: Tensor, weights: Tensor) -> Tensor:
    """log p_kNN of each neighbour's token, (rows, k): the sum of the shares of all neighbours with that token.

    tokens (rows, k); weights (rows, k) as `log_weights` gives them
    """
    same = tokens[:, :, None] == tokens[:, None, :]
    return torch.matmul(same.to(weights.dtype), weights.exp()[..., None])[..., 0].log()


def interpolate_(log_probabilities: Tensor, tokens: Tensor, log_p_knn: Tensor, log_lambda: Tensor) -> Tensor:
    """Equation 3 on log-probabilities, in place; returns the offset to add to every number of a row, (rows,).

    log_probabilities (rows, vocabulary); tokens and log_p_knn (rows, k); log_lambda (rows,), at most 0

    With a row's offset log(1 - λ) the mixture of token y is offset + log(p_NMT(y) + λ / (1 - λ) p_kNN(y)).
    """
    offset = torch.log1p(-log_lambda.exp().clamp(max=_MAX_WEIGHT))
    base = log_probabilities.gather(1, tokens)
    log_probabilities.scatter_(1, tokens, torch.logaddexp(base, log_p_knn + (log_lambda - offset)[:, None]))
    return offset
