"""The last stage of a search on a device: it sorts candidates by their true distances."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.index.base import SearchResult, nearest_first
from knnmt.native.gpu import kernel

_MAX_CANDIDATES = 1024  # candidates per row, as in measure.cu


class Places(NamedTuple):
    """Maps places in tiles to keys.

    near: the tiles of each row, (rows, probes)
    ids: the key id in each place of all tiles, (tiles, keys of a tile), -1 for none
    """

    near: Tensor
    ids: Tensor

    def ids_of(self, chosen: Tensor) -> Tensor:
        size = self.ids.shape[1]
        return self.ids[self.near.gather(1, chosen // size), chosen % size]


def nearest_among(keys: Tensor, queries: Tensor, chosen: Tensor, k: int, places: Places | None = None) -> SearchResult:
    """The k nearest of each row's candidates, as `base.Index` finds them.

    keys (count, dim), float16 or float32; queries (rows, dim) float32
    chosen: (rows, candidates), ids of keys, -1 for none, or places that `places` maps to ids
    """
    rows, candidates = chosen.shape
    measure = kernel("measure", keys.device) if rows and candidates <= _MAX_CANDIDATES else None
    if measure is None:
        ids = chosen if places is None else places.ids_of(chosen)
        differences = keys[ids] - queries[:, None]  # -1 takes the last key, which `nearest_first` ignores
        return nearest_first(torch.linalg.vector_norm(differences, dim=-1).square_(), ids, k)
    distances_sq = torch.empty((rows, k), device=keys.device)
    ids = torch.empty((rows, k), dtype=torch.long, device=keys.device)
    of_places = (chosen, chosen, 0, 0) if places is None else (*places, places.near.shape[1], places.ids.shape[1])
    of_keys = (keys, int(keys.dtype == torch.float16), keys.stride(0), keys.shape[1])
    args = [queries.contiguous(), chosen.contiguous(), *of_places, *of_keys, candidates, k, distances_sq, ids]
    measure(grid=(rows, 1, 1), block=(1024, 1, 1), args=args)
    return distances_sq, ids
