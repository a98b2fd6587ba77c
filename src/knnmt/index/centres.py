"""The centres of an index's lists: k-means, and the nearest centres of a query, in PyTorch.

FAISS can do both, but the BLAS in its wheel does not support recent CPUs and was four times slower.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from knnmt.index.base import SearchResult
from knnmt.progress import ignore

_BLOCK = 1 << 13


def train_centres(
    keys: Tensor, count: int, seed: int, rounds: int = 10, on_round: Callable[[int], None] = ignore
) -> Tensor:
    """k-means from `count` random keys: (keys, dim) -> (count, dim). A centre without keys moves to a key.

    `on_round` receives the number of rounds done.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = keys[torch.randperm(len(keys), generator=generator)[:count]].clone()
    for done in range(rounds):
        on_round(done)
        sums, sizes = torch.zeros_like(centres), torch.zeros(count, device=keys.device)
        for block in torch.split(keys, _BLOCK):
            nearest = torch.addmm(centres.square().sum(1), block, centres.T, alpha=-2).argmin(1)
            sums.index_add_(0, nearest, block)
            sizes += torch.bincount(nearest, minlength=count)
        lost = sizes == 0
        sums[lost] = keys[torch.randint(len(keys), (int(lost.sum()),), generator=generator)]
        centres = sums / sizes.clamp(min=1)[:, None]
    return centres


def nearest_centres(queries: Tensor, centres: Tensor, centres_sq: Tensor, probes: int) -> SearchResult:
    """Squared distances and numbers of the nearest centres, (rows, probes) each; centres_sq: their squared norms."""
    products = torch.addmm(centres_sq, queries, centres.T, alpha=-2)
    best, numbers = products.topk(probes, dim=1, largest=False, sorted=True)
    return (best + queries.square().sum(1, keepdim=True)).clamp_(min=0), numbers
