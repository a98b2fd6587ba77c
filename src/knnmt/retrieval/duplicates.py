"""Equal rows within a step: all beams of a sentence at its first step, equal sentences of a batch."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=8)
def _direction(dim: int, device: torch.device) -> Tensor:
    return torch.randn(dim, generator=torch.Generator().manual_seed(0)).to(device)


def distinct_rows(queries: Tensor) -> tuple[Tensor, Tensor] | None:
    """Which rows to search, and for each row which of those it equals; None where no two rows are equal.

    queries (rows, dim). Equal rows have equal products with a random direction, which are cheap to compare; rows that
    only happen to have equal products are searched each for itself.
    """
    if len(queries) < 2:
        return None
    if len(set(queries[:, 0].tolist())) == len(queries):
        return None  # mostly the first numbers are different already
    # Not `@`: that adds up the rows of one call in different orders, and equal rows would differ in the last bit.
    products = (queries * _direction(queries.shape[1], queries.device)).sum(1)
    ordered, order = products.sort(stable=True)
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    if bool(new.all()):
        return None
    new[1:] |= (queries[order[1:]] != queries[order[:-1]]).any(1)
    which = torch.empty_like(order)
    which[order] = new.cumsum(0) - 1
    return order[new], which
