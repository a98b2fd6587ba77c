"""The cache of retrieval results: a step whose state is near an earlier one reuses its result.

A hit has a Euclidean distance of at most τ to a state of an earlier step, never of the same one. States are compared as
they are searched, after a PCA if there is one, unless the settings ask for whole states.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knnmt.config import CacheConfig
from knnmt.retrieval.neighbours import Neighbours

FIRST_CAPACITY = 32


class RetrievalCache:
    """Earlier states with their neighbours, for each of several scopes (the sentences of a batch, or the whole batch).

    keys (scopes, capacity, dim); norms_sq (scopes, capacity), infinite in empty places; the neighbours are in arrays
    (scopes, capacity, k). A full scope overwrites its oldest states.

    origins (scopes, capacity, dim): the states that were searched. They differ from the keys where hits are kept.
    """

    def __init__(self, scopes: int, dim: int, k: int, config: CacheConfig, device: torch.device) -> None:
        self._config = config
        capacity = min(FIRST_CAPACITY, config.capacity)
        self._keys = torch.zeros((scopes, capacity, dim), device=device)
        self._origins = torch.zeros_like(self._keys) if config.keep_hits else None
        self._norms_sq = torch.full((scopes, capacity), float("inf"), device=device)
        self._found = [
            each.view(scopes, capacity, k) for each in _arrays(Neighbours.none(scopes * capacity, k, device))
        ]
        self._written = torch.zeros(scopes, dtype=torch.long, device=device)
        self._most_written = 0

    def nearest(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The Euclidean distance to the nearest state, and the place of that state, (scopes, rows) each.

        queries (scopes, rows, dim)
        """
        used = min(self._most_written, self._keys.shape[1])
        if used == 0:
            shape = queries.shape[:2]
            return queries.new_full(shape, float("inf")), torch.zeros(shape, dtype=torch.long, device=queries.device)
        products = torch.baddbmm(self._norms_sq[:, None, :used], queries, self._keys[:, :used].mT, alpha=-2)
        partly_sq, place = products.min(-1)
        # Differences give the exact distance: with products, no state would be at distance 0 from itself.
        nearest = self._keys[torch.arange(len(queries), device=queries.device)[:, None], place]
        return (queries - nearest).norm(dim=-1).masked_fill_(partly_sq.isinf(), float("inf")), place

    def at(self, scopes: Tensor, places: Tensor) -> Neighbours:
        """The neighbours of the states at the given places of the given scopes, (rows,) each."""
        return Neighbours(*(each[scopes, places] for each in self._found))

    def origins(self, scopes: Tensor, places: Tensor) -> Tensor:
        """The states whose searches gave the neighbours at these places, (rows, dim)."""
        return (self._keys if self._origins is None else self._origins)[scopes, places]

    def add(self, chosen: Tensor, queries: Tensor, neighbours: Neighbours, origins: Tensor | None = None) -> None:
        """Keep the chosen rows of a step.

        chosen (scopes, rows) bool; queries (scopes, rows, dim); neighbours of all rows, scope by scope; origins: the
        states that were searched, in the shape of queries, if they differ from queries
        """
        self._reserve(self._most_written + chosen.shape[1])
        order = self._written[:, None] + chosen.cumsum(1) - 1
        self._written = order[:, -1] + 1
        if chosen.shape[1] > self._keys.shape[1]:  # the first rows of this step would be overwritten by its last
            chosen = chosen & (order >= self._written[:, None] - self._keys.shape[1])
        scopes, rows = chosen.nonzero(as_tuple=True)
        places = order[scopes, rows] % self._keys.shape[1]
        kept = queries[scopes, rows]
        self._keys[scopes, places] = kept
        if self._origins is not None:
            self._origins[scopes, places] = kept if origins is None else origins[scopes, rows]
        self._norms_sq[scopes, places] = kept.square().sum(-1)
        for mine, new in zip(self._found, _arrays(neighbours[chosen.flatten()]), strict=True):
            mine[scopes, places, : new.shape[1]] = new
        self._most_written += chosen.shape[1]

    def keep(self, scopes: Sequence[int]) -> None:
        """Scope i takes over the states of scope scopes[i]."""
        rows = torch.tensor(scopes, dtype=torch.long, device=self._keys.device)
        self._keys, self._norms_sq, self._written = self._keys[rows], self._norms_sq[rows], self._written[rows]
        self._origins = None if self._origins is None else self._origins[rows]
        self._found = [each[rows] for each in self._found]

    def _reserve(self, needed: int) -> None:
        capacity = self._keys.shape[1]
        larger = min(max(needed, 2 * capacity), self._config.capacity)
        if needed <= capacity or larger <= capacity:
            return
        self._keys = grown(self._keys, larger, 0.0)
        self._origins = None if self._origins is None else grown(self._origins, larger, 0.0)
        self._norms_sq = grown(self._norms_sq, larger, float("inf"))
        fillers = (float("inf"), 0, -1)
        self._found = [grown(each, larger, filler) for each, filler in zip(self._found, fillers, strict=True)]


def _arrays(neighbours: Neighbours) -> list[Tensor]:
    return [neighbours.distances_sq, neighbours.tokens, neighbours.ids]


def grown(tensor: Tensor, capacity: int, filler: float) -> Tensor:
    """The tensor (scopes, smaller capacity, ...), enlarged to the given capacity."""
    grown = tensor.new_full((tensor.shape[0], capacity, *tensor.shape[2:]), filler)
    grown[:, : tensor.shape[1]] = tensor
    return grown
