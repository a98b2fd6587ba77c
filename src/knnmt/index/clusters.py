"""Clustered search on a GPU: near tiles of shortened keys propose candidates, and the store's full keys decide.

k-means puts keys into lists; a list is cut into tiles of the same size, each with its own centre. A query searches the
tiles whose centres are nearest. Keys in tiles have fewer dimensions (PCA) but the norm of all dimensions; the best are
measured again with their full keys. Shapes depend only on the number of queries, and the host waits for nothing, as in
`knnmt.index.resident`. `knnmt.index.tiles` makes the tiles.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from knnmt.index.base import SearchResult, nearest_first, nothing
from knnmt.index.kinds import SearchSettings
from knnmt.index.reranking import Places, nearest_among
from knnmt.index.resident import MAX_QUERY_NUMBER, ResidentKeys, Scan, product
from knnmt.index.selecting import columns_of_smallest
from knnmt.index.tiles import TILE, principal_axes, shortened, tile_centres, tiled
from knnmt.native.gpu import kernel

_KEPT_DIMENSIONS = 0.4  # the share of the dimensions that shortened keys keep
_ROWS = 1 << 11
_TILES_OF_A_BLOCK = 2  # tiles per block in tiles.cu, with eight warps, each for a quarter of a tile


def kept_dimensions(dim: int) -> int:
    """The dimensions of shortened keys: with the three extra columns of a scan, rows have a multiple of 64 numbers."""
    return min(dim, 64 * math.ceil(_KEPT_DIMENSIONS * dim / 64) - 3)


def usual_settings(count: int) -> SearchSettings:
    """Settings before any measurement: about 10 √count keys are compared, as in faithful searches of real stores."""
    return SearchSettings(probes=8 + round(10 * math.sqrt(count) / TILE), candidates=96)


class Clusters:
    """Tiles over resident keys, and the search in them.

    settings: probes: number of tiles that a query searches; candidates: number of their keys measured in full
    settled: whether a measurement has shown that these settings are faithful enough
    queries_per_tile: how many queries search one copy of a tile
    tiles_at_once: how many tiles are copied at once, by default 256 MiB of shortened keys
    """

    queries_per_tile, tiles_at_once = 16, 1 << 14

    def __init__(self, keys: ResidentKeys, seed: int = 0) -> None:
        self.keys, self.count = keys, keys.count
        self.settings, self.settled = usual_settings(keys.count), False
        axes = principal_axes(keys, kept_dimensions(keys.dim))
        short, norms_sq = shortened(keys, axes)
        self._ids = tiled(keys, short, seed)
        self._live_ids = self._ids.clone()
        self.tiles = len(self._ids) // TILE
        there = self._ids.clamp(min=0)
        self._scan = Scan(len(there), short.shape[1], keys.device)
        self._scan.rows[: len(there), : short.shape[1]] = short[there]
        self._scan.complete(norms_sq[there])
        self.mask(torch.ones(keys.count, dtype=torch.bool))  # this masks the empty places
        centres = tile_centres(keys, self._ids)
        self._centres = Scan(self.tiles, keys.dim, keys.device)
        self._centres.rows[: self.tiles, : keys.dim] = centres
        self._centres.complete(centres.square().sum(1))
        self._asking, self._bias = self._how_to_ask(axes)

    def _how_to_ask(self, axes: Tensor) -> tuple[Tensor, Tensor]:
        """A matrix and a bias that turn queries, in one product, into the factors for centres and for keys."""
        dim, width = self.keys.dim, self._centres.rows.shape[1]
        matrix = torch.zeros((dim, width + self._scan.rows.shape[1]), device=self.keys.device)
        matrix[:, :dim] = torch.eye(dim, device=self.keys.device)
        matrix[:, width : width + axes.shape[1]] = axes
        matrix *= -2 * self.keys.scale
        bias = -self.keys.mean @ matrix
        bias[dim:width] = self._centres.ends
        bias[width + axes.shape[1] :] = self._scan.ends
        return matrix, bias

    def mask(self, live: Tensor) -> None:
        """Leave out the removed keys, False in (count,). It works in place, so that a captured search follows."""
        there = live.to(self._ids.device)[self._ids.clamp(min=0)] & (self._ids >= 0)
        self._scan.mask(there)
        self._live_ids.copy_(self._ids.masked_fill(~there, -1))

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """As in `base.Index`; queries (rows, dim) float32 on the keys' device, ids counted from the first key."""
        if not self.count or not len(queries):
            return nearest_first(*nothing(queries), k)
        parts = [self._search(rows, k) for rows in torch.split(queries, _ROWS)]
        return parts[0] if len(parts) == 1 else (torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts]))

    def _search(self, queries: Tensor, k: int) -> SearchResult:
        # A query that is NaN or too far away becomes finite numbers; otherwise it would search tiles that do not exist.
        asked = torch.addmm(self._bias, queries, self._asking).half()
        asked.nan_to_num_(0.0, MAX_QUERY_NUMBER, -MAX_QUERY_NUMBER)
        of_centres, of_keys = torch.split(asked, [each.rows.shape[1] for each in (self._centres, self._scan)], dim=1)
        probes = min(self.settings.probes, self.tiles)
        near = columns_of_smallest(product(of_centres, self._centres.rows.T), probes)
        scores = self._scores(of_keys, near).view(len(queries), -1)
        chosen = columns_of_smallest(scores, min(max(2 * k, self.settings.candidates), scores.shape[1]))
        return nearest_among(self.keys.keys, queries, chosen, k, Places(near, self._live_ids.view(-1, TILE)))

    def _scores(self, asked: Tensor, near: Tensor) -> Tensor:
        """The scores of the keys in each query's tiles, (rows * probes, TILE). A kernel reads the keys in place, or
        products compute the scores.
        """
        of_tiles = kernel("tiles", near.device)
        if of_tiles is None:
            return self._scores_by_products(asked, near)
        (rows, probes), keys = near.shape, self._scan.rows
        scores = torch.empty((rows * probes, TILE), device=near.device)
        args = [asked, asked.stride(0), keys, near, probes, keys.shape[1], scores]
        of_tiles(grid=(math.ceil(probes / _TILES_OF_A_BLOCK), rows, 1), block=(256, 1, 1), args=args)
        return scores

    def _scores_by_products(self, asked: Tensor, near: Tensor) -> Tensor:
        """For few queries, their tiles are copied together. For many, `queries_per_tile` queries at a time are
        multiplied with a tile in place; a tile is copied only if more queries want it.
        """
        pairs, probes = near.numel(), near.shape[1]
        copies = pairs // self.queries_per_tile  # the largest number of copies of tiles that more queries want
        if self.tiles + 3 * copies >= pairs:  # a copy is read, written, and read again
            at_once = max(1, self.tiles_at_once // probes)
            parts = zip(torch.split(near, at_once), torch.split(asked, at_once), strict=True)
            scores = [product(self._copied(some).view(len(some), -1, of.shape[1]), of[..., None]) for some, of in parts]
            return scores[0] if len(scores) == 1 else torch.cat(scores)
        tiles, order = near.flatten().int().sort()
        rank = torch.arange(pairs, device=near.device) - torch.searchsorted(tiles, tiles)  # among a tile's queries
        first = rank < self.queries_per_tile
        copy = (~first & (rank % self.queries_per_tile == 0)).cumsum(0) - 1
        copied = tiles.new_zeros(copies + 1).scatter_(0, torch.where(first, copies, copy), tiles)[:copies]
        places = torch.where(first, tiles, self.tiles + copy) * self.queries_per_tile + rank % self.queries_per_tile
        rows = order.new_zeros((self.tiles + copies) * self.queries_per_tile).scatter_(0, places, order // probes)
        in_place = self._scan.rows[: len(self._ids)].view(self.tiles, TILE, -1)
        keys = [
            *torch.split(in_place, self.tiles_at_once),
            *(self._copied(some) for some in torch.split(copied, self.tiles_at_once)),
        ]
        wanted = torch.split(rows.view(-1, self.queries_per_tile), [len(some) for some in keys])
        scores = [product(asked[mine], some.transpose(1, 2)) for some, mine in zip(keys, wanted, strict=True)]
        return torch.cat(scores).view(-1, TILE)[torch.empty_like(places).scatter_(0, order, places)]

    def _copied(self, tiles: Tensor) -> Tensor:
        """The keys of tiles given in any shape: (tiles, TILE, width)."""
        keys = self._scan.rows[: len(self._ids)].view(self.tiles, -1)
        return keys.index_select(0, tiles.flatten()).view(-1, TILE, self._scan.rows.shape[1])
