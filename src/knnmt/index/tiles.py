"""Makes tiles of resident keys for `knnmt.index.clusters`: PCA shortens keys, k-means makes lists, which are cut."""

from __future__ import annotations

import torch
from torch import Tensor

from knnmt.index.centres import train_centres
from knnmt.index.resident import ResidentKeys, Scan, product

TILE = 64  # keys
_PER_LIST = 4 * TILE  # approximate number of keys
_MAX_LISTS = 1 << 15
_TRAINED_ON = 32  # training keys per list
_TURNS = 4  # rounds of the power method that finds the direction in which a list is longest
_SCORES = 1 << 28  # scores of keys and centres computed at once


def principal_axes(keys: ResidentKeys, count: int) -> Tensor:
    """The `count` directions in which keys vary most, (dim, count) float32."""
    covariance = torch.zeros((keys.dim, keys.dim), dtype=torch.float64, device=keys.device)
    for _, centred in keys.blocks():
        covariance += (centred.T @ centred).double()
    axes: Tensor = torch.linalg.eigh(covariance).eigenvectors
    return axes[:, -count:].float().contiguous()


def shortened(keys: ResidentKeys, axes: Tensor) -> tuple[Tensor, Tensor]:
    """The keys along these axes, (count, axes) float16, and their whole squared norms, (count,)."""
    short = torch.empty((keys.count, axes.shape[1]), dtype=torch.float16, device=keys.device)
    norms_sq = torch.empty(keys.count, device=keys.device)
    for some, centred in keys.blocks():
        short[some] = centred @ axes
        norms_sq[some] = centred.square().sum(1)
    return short, norms_sq


def tiled(keys: ResidentKeys, short: Tensor, seed: int) -> Tensor:
    """The key in each place, (tiles * TILE,), -1 for empty places: list after list, each padded to whole tiles. The
    keys of a list are in order along the direction in which the list is longest.
    """
    lists, count = _lists(keys, seed)
    along = _along_their_lists(short, lists, count)
    order = along.argsort()
    order = order[lists[order].argsort(stable=True)]
    sizes = torch.bincount(lists, minlength=count)
    filled = (sizes + TILE - 1) // TILE * TILE
    moved = (filled.cumsum(0) - filled) - (sizes.cumsum(0) - sizes)  # how much later each list begins
    places = torch.arange(keys.count, device=keys.device) + moved[lists[order]]
    return torch.full((int(filled.sum()),), -1, device=keys.device).scatter_(0, places, order)


def _lists(keys: ResidentKeys, seed: int) -> tuple[Tensor, int]:
    """The list of each key, (count,), and how many lists there are."""
    count = max(1, min(_MAX_LISTS, keys.count // _PER_LIST))
    chosen = torch.randperm(keys.count, generator=torch.Generator().manual_seed(seed))[: _TRAINED_ON * count]
    centres = train_centres(keys.some(chosen.to(keys.device)), count, seed)
    scan = Scan(count, keys.dim, keys.device)
    scan.rows[:count, : keys.dim] = centres
    scan.complete(centres.square().sum(1))
    lists = torch.empty(keys.count, dtype=torch.long, device=keys.device)
    for some, centred in keys.blocks():
        parts = [product(scan.asked(part), scan.rows.T).argmin(1) for part in torch.split(centred, _SCORES // count)]
        lists[some] = torch.cat(parts)
    return lists, count


def _along_their_lists(short: Tensor, lists: Tensor, count: int) -> Tensor:
    """How far each key lies along the direction in which its list is longest, by the power method: (count,)."""
    sums = torch.zeros((count, short.shape[1]), device=short.device)
    parts = list(zip(torch.split(short, _SCORES // 1024), torch.split(lists, _SCORES // 1024), strict=True))
    for some, mine in parts:
        sums.index_add_(0, mine, some.float())
    means = sums / torch.bincount(lists, minlength=count).clamp(min=1)[:, None]
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(means.shape, generator=generator).to(short.device)
    for _ in range(_TURNS):
        turned = torch.zeros_like(directions)
        for some, mine in parts:
            apart = some.float() - means[mine]
            turned.index_add_(0, mine, apart * (apart * directions[mine]).sum(1, keepdim=True))
        directions = torch.nn.functional.normalize(turned)
    return torch.cat([((some.float() - means[mine]) * directions[mine]).sum(1) for some, mine in parts])


def tile_centres(keys: ResidentKeys, ids: Tensor) -> Tensor:
    """The mean of each tile, (tiles, dim) float32."""
    parts = []
    for some in torch.split(ids.view(-1, TILE), _SCORES // (1024 * TILE)):
        there = (some >= 0)[..., None]
        members = keys.some(some.clamp(min=0).flatten()).view(*some.shape, -1)
        parts.append((members * there).sum(1) / there.sum(1))
    return torch.cat(parts)
