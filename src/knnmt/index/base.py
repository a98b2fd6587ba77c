"""The interface of a search over keys, and functions that merge the results of several searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

SearchResult = tuple[Tensor, Tensor]


class Index(Protocol):
    """A search for the nearest keys."""

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """The k nearest entries of each query, nearest first: squared L2 distances and entry ids, (rows, k) each.

        queries (rows, dim) float32; ids are int64. If there are fewer than k, the rest is -1 with infinite distance.
        """


def nothing(queries: Tensor) -> SearchResult:
    """The result of a search among no entries: (rows, 0) each."""
    return queries.new_empty(len(queries), 0), queries.new_empty(len(queries), 0, dtype=torch.long)


def merge_top_k(found: Sequence[SearchResult], k: int) -> SearchResult:
    """The k nearest of several results for the same queries. An entry must not be in more than one result."""
    distances_sq = torch.cat([distances for distances, _ in found], dim=1)
    ids = torch.cat([each for _, each in found], dim=1)
    return nearest_first(distances_sq, ids, k)


def nearest_first(distances_sq: Tensor, ids: Tensor, k: int, some_missing: bool = True) -> SearchResult:
    """The k nearest of (rows, candidates), in order, padded if there are fewer. A candidate with id -1, or with a
    distance that is infinite or NaN, does not count.

    some_missing: False if it is known that no id is -1
    """
    if some_missing:
        distances_sq = distances_sq.masked_fill((ids < 0) | distances_sq.isnan(), float("inf"))
    best, place = distances_sq.topk(min(k, ids.shape[1]), dim=1, largest=False, sorted=True)
    nowhere = ~(best < float("inf"))  # NaN comes last, too
    best.masked_fill_(nowhere, float("inf"))
    chosen = ids.gather(1, place).masked_fill_(nowhere, -1)
    return padded_to(best, chosen, k)


def padded_to(distances_sq: Tensor, ids: Tensor, k: int) -> SearchResult:
    """A result, (rows, at most k), padded to k columns with infinite distances and ids of -1."""
    if (short := k - ids.shape[1]) > 0:
        distances_sq = torch.nn.functional.pad(distances_sq, (0, short), value=float("inf"))
        ids = torch.nn.functional.pad(ids, (0, short), value=-1)
    return distances_sq, ids
