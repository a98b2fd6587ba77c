"""How short keys may be, and how faithful a search must be, by what each costs in likelihood of development text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from knnmt.compression.pca import fit_keys
from knnmt.config import RetrievalConfig
from knnmt.fitting.calibration import DEFAULT_K
from knnmt.fitting.development import Development
from knnmt.fitting.fidelity import BATCHES, Fidelity, fidelity, milliseconds_per_batch
from knnmt.fitting.tuning import best_of_fixed
from knnmt.index.base import Found
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.kinds import SearchSettings
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore

DIMS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768)
SAMPLED_ENTRIES = 100_000
SAMPLED_POSITIONS = 2_000
_PROBES = (0.25, 0.5, 1.0, 2.0, 4.0)  # times those that the index has
_BLOCK_ROWS = 8192


@dataclass(frozen=True, slots=True)
class DimensionTradeOff:
    """Keys of `dim` dimensions: the part of the keys' variance that is kept, and nats a token lost against all."""

    dim: int
    variance: float
    loss: float


@dataclass(frozen=True, slots=True)
class SearchTradeOff:
    """An index with some settings.

    fidelity: of the 8 nearest, as `knnmt index` measures it
    loss: nats a token lost against exact search, with the settings' own k
    milliseconds: for 40 queries
    """

    settings: SearchSettings
    fidelity: Fidelity
    loss: float
    milliseconds: float


def dimension_trade_offs(
    entries: Entries, development: Development, k: int, dims: Sequence[int] = DIMS, seed: int = 0
) -> Iterator[DimensionTradeOff]:
    """What shorter keys lose, from the shortest on, with T and a fixed λ that fit each.

    Exact search among at most 100,000 entries taken by chance, for 2,000 positions from all over the text: what is
    lost can be told from these, what the whole store is worth cannot.
    """
    live = np.arange(entries.entries) if entries.live is None else np.flatnonzero(entries.live.numpy())
    ids = np.sort(np.random.default_rng(seed).permutation(live)[:SAMPLED_ENTRIES])
    keys = torch.from_numpy(np.array(entries.keys_of(ids), np.float32))
    some = development.spread(SAMPLED_POSITIONS)
    values = entries.values[torch.from_numpy(ids)].long()
    counts = None if entries.counts is None else entries.counts[torch.from_numpy(ids)].log()

    def loss(queries: Tensor, among: Tensor) -> float:
        distances_sq, places = _nearest(queries, among, min(k, len(among)))
        found = Neighbours(distances_sq, values[places], places)
        return best_of_fixed(some.positions_with(found, (None if counts is None else counts[places], None)))[0]

    projection = fit_keys((block.numpy() for block in torch.split(keys, _BLOCK_ROWS)), entries.dim, entries.dim)
    whole = loss(some.states, keys)
    queries, rotated = projection(some.states), projection(keys)
    for dim in dims:
        if dim < entries.dim:
            kept = float(projection.explained_variance[:dim].sum())
            yield DimensionTradeOff(dim, kept, loss(queries[:, :dim], rotated[:, :dim]) - whole)


def search_trade_offs(opened: OpenStore, development: Development, config: RetrievalConfig) -> Iterator[SearchTradeOff]:
    """What the store's index loses, from fast to slow, for 2,000 positions; nothing if there is none."""
    index = opened.index.approximate
    if index is None:
        return
    some, entries, usual = development.spread(SAMPLED_POSITIONS), opened.index.entries, index.settings
    k = min(config.k, entries.entries)

    def loss(found: Found) -> float:
        tokens = entries.values[found[1].clamp(min=0)].long().masked_fill(found[1] < 0, -1)
        neighbours = Neighbours(found[0], tokens, found[1])
        return some.positions_with(neighbours, opened.log_counts(found[1])).loss(config)

    true = ExactIndex(entries).search(some.states, k)
    whole, nearest = loss(true), (true[0][:, :DEFAULT_K], true[1][:, :DEFAULT_K])
    try:
        for part in _PROBES:
            index.settings = settings = usual.times(part)
            few = opened.index.search(some.states, min(DEFAULT_K, k))
            measured = fidelity(some.states, few, nearest, entries, config.temperature)
            found = opened.index.search(some.states, k)
            milliseconds = milliseconds_per_batch(opened.index, some.states, k)[BATCHES[1]]
            yield SearchTradeOff(settings, measured, loss(found) - whole, milliseconds)
    finally:
        index.settings = usual


def _nearest(queries: Tensor, keys: Tensor, k: int) -> Found:
    """Exact search among keys in memory."""
    norms_sq = keys.square().sum(1)
    parts = []
    for some in torch.split(queries, 256):
        partly_sq, ids = torch.addmm(norms_sq, some, keys.T, alpha=-2).topk(k, largest=False)
        parts.append(((partly_sq + some.square().sum(1, keepdim=True)).clamp(min=0), ids))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
