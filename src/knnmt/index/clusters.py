"""Clustered search on a GPU: near tiles of shortened keys propose, the store's whole keys decide.

k-means puts keys into lists; a list is cut into tiles of the same size, each with a centre of its own. A query looks
into the tiles whose centres are nearest. There keys lie with fewer dimensions (PCA) but the norm of all of them, and
the best are measured again whole. Shapes depend on the number of queries alone, and the host waits for nothing, as in
`knnmt.index.resident`. `knnmt.index.tiles` makes the tiles.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from knnmt.index.base import Found, nearest_first, nothing
from knnmt.index.kinds import SearchSettings
from knnmt.index.resident import ResidentKeys, Scan, product
from knnmt.index.tiles import TILE, principal_axes, shortened, tile_centres, tiled

_KEPT = 0.4  # of the dimensions
_SHARED = 16  # queries that look into one copy of a tile
_AT_ONCE = 1 << 14  # tiles that are copied at once: 256 MiB of shortened keys
_ROWS = 1 << 11


def kept_dimensions(dim: int) -> int:
    """Of shortened keys: as many as make, with two columns for the norm, a multiple of 64 numbers."""
    return min(dim, 64 * math.ceil(_KEPT * dim / 64) - 2)


def usual_settings(count: int) -> SearchSettings:
    """Before anything is measured: some 10 √count keys are looked at, as faithful searches of real stores did."""
    return SearchSettings(probes=8 + round(10 * math.sqrt(count) / TILE), candidates=96)


class Clusters:
    """Tiles over resident keys, and the search in them.

    settings: probes: tiles that a query looks into; candidates: how many of their keys are measured whole
    settled: whether somebody has measured that these settings are faithful enough
    """

    def __init__(self, keys: ResidentKeys, seed: int = 0) -> None:
        self.keys = keys
        self.settings, self.settled = usual_settings(keys.count), False
        self._axes = principal_axes(keys, kept_dimensions(keys.dim))
        short, norms_sq = shortened(keys, self._axes)
        self._ids = tiled(keys, short, seed)
        self.tiles = len(self._ids) // TILE
        there = self._ids.clamp(min=0)
        self._scan = Scan(len(there), short.shape[1], keys.device)
        self._scan.rows[: len(there), : short.shape[1]] = short[there]
        self._scan.complete(norms_sq[there])
        self.mask(torch.ones(keys.count, dtype=torch.bool))
        centres = tile_centres(keys, self._ids)
        self._centres = Scan(self.tiles, keys.dim, keys.device)
        self._centres.rows[: self.tiles, : keys.dim] = centres
        self._centres.complete(centres.square().sum(1))

    def mask(self, live: Tensor) -> None:
        """Leave out keys that are gone, False in (count,); in place, so that a captured search does, too."""
        live = live.to(self._ids.device)
        self._scan.mask(live[self._ids.clamp(min=0)] & (self._ids >= 0))

    def search(self, queries: Tensor, k: int) -> Found:
        """As in `base.Index`; queries (rows, dim) float32 on the keys' device, ids counted from the first key."""
        if not self.keys.count or not len(queries):
            return nearest_first(*nothing(queries), k)
        parts = [self._search(rows, k) for rows in torch.split(queries, _ROWS)]
        return parts[0] if len(parts) == 1 else (torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts]))

    def _search(self, queries: Tensor, k: int) -> Found:
        centred = self.keys.centred(queries)
        of_centres = product(self._centres.asked(centred), self._centres.rows.T)
        probes = min(self.settings.probes, self.tiles)
        near = of_centres.topk(probes, dim=1, largest=False, sorted=False).indices
        scores = self._scores(self._scan.asked(centred @ self._axes), near).view(len(queries), -1)
        candidates = min(max(2 * k, self.settings.candidates), scores.shape[1])
        best, place = scores.topk(candidates, dim=1, largest=False, sorted=False)
        slots = near.gather(1, place // TILE) * TILE + place % TILE
        return self.keys.nearest_of(queries, self._ids[slots].masked_fill_(best.isinf(), -1), k)

    def _scores(self, asked: Tensor, near: Tensor) -> Tensor:
        """The scores of the keys in each query's tiles, (rows * probes, TILE).

        A tile is copied for the products. With many queries to a tile, one copy serves up to _SHARED of them.
        """
        pairs = near.numel()
        most = pairs // _SHARED + min(pairs, self.tiles)  # copies, if they are shared
        if 2 * most > pairs:
            rows = torch.arange(len(near), device=near.device)[:, None].expand_as(near)
            return self._products(asked, near.flatten(), rows.reshape(-1, 1))
        tiles, order = near.flatten().sort()
        rank = torch.arange(pairs, device=near.device) - torch.searchsorted(tiles, tiles)  # among a tile's queries
        copies = (rank % _SHARED == 0).cumsum(0) - 1
        places = copies * _SHARED + rank % _SHARED
        copied = torch.zeros(most, dtype=torch.long, device=near.device).scatter_(0, copies, tiles)
        rows = torch.zeros(most * _SHARED, dtype=torch.long, device=near.device)
        rows.scatter_(0, places, order // near.shape[1])
        scores = self._products(asked, copied, rows.view(-1, _SHARED))
        return scores[torch.empty_like(places).scatter_(0, order, places)]

    def _products(self, asked: Tensor, tiles: Tensor, rows: Tensor) -> Tensor:
        """The scores of copied tiles, (copies,), for their queries, (copies, shared): (copies * shared, TILE)."""
        keys = self._scan.rows[: len(self._ids)].view(self.tiles, -1)
        parts = [
            product(asked[mine], keys.index_select(0, some).view(len(some), TILE, -1).transpose(1, 2))
            for some, mine in zip(torch.split(tiles, _AT_ONCE), torch.split(rows, _AT_ONCE), strict=True)
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).view(-1, TILE)
