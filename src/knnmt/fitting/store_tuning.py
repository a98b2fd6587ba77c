"""How short keys may be, and how faithful a search must be, by their cost in likelihood of development text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
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
_PROBES = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the index's own number
_BLOCK_ROWS = 8192


@dataclass(frozen=True, slots=True)
class DimensionTradeOff:
    """Keys of `dim` dimensions: the share of the keys' variance that is kept, and the loss in nats per token."""

    dim: int
    variance: float
    loss: float


@dataclass(frozen=True, slots=True)
class SearchTradeOff:
    """An index with some settings.

    fidelity: of the 8 nearest, as `knnmt index` measures it
    loss: nats per token against exact search, with the settings' own k
    milliseconds: for 40 queries
    """

    settings: SearchSettings
    fidelity: Fidelity
    loss: float
    milliseconds: float


def dimension_trade_offs(
    entries: Entries, development: Development, k: int, dims: Sequence[int] = DIMS, seed: int = 0
) -> Iterator[DimensionTradeOff]:
    """The loss by shorter keys, from the shortest on, with T and a fixed λ that fit each.

    It searches exactly among at most 100,000 random entries, for 2,000 positions spread over the text. These show the
    loss, but not the value of the whole store.
    """
    live = np.arange(entries.entries) if entries.live is None else np.flatnonzero(entries.live.numpy())
    ids = np.sort(np.random.default_rng(seed).permutation(live)[:SAMPLED_ENTRIES])
    keys = torch.from_numpy(np.array(entries.keys_of(ids), np.float32))
    some = development.spread(SAMPLED_POSITIONS)
    values = entries.values_of(torch.from_numpy(ids)).long()
    counted = entries.counts_of(torch.from_numpy(ids), merged=True)
    counts = None if counted is None else counted.log()

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
    """The loss by the store's index, from fast to slow, for 2,000 positions; nothing if there is no index."""
    index = opened.index.approximate
    if index is None:
        return
    some, entries, usual = development.spread(SAMPLED_POSITIONS), opened.index.entries, index.settings
    k = min(config.k, entries.entries)

    def loss(found: Found) -> float:
        tokens = entries.values_of(found[1].clamp(min=0)).long().masked_fill(found[1] < 0, -1)
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


def advise_on_keys(
    opened: OpenStore, development: Development, k: int, most_lost: float, tell: Callable[[str], None]
) -> list[DimensionTradeOff]:
    """Tell the loss by shorter keys, and how short they may be to lose at most `most_lost` nats per token."""
    entries = opened.index.entries
    tell(f"{'dims':>8} {'variance kept':>15} {'nats lost':>10}")
    offs: list[DimensionTradeOff] = []
    for each in dimension_trade_offs(entries, development, k):
        tell(f"{each.dim:>8} {each.variance:15.1%} {each.loss:10.4f}")
        offs.append(each)
    sampled = min(SAMPLED_ENTRIES, entries.entries), len(development.spread(SAMPLED_POSITIONS))
    proposed = next((each.dim for each in offs if each.loss <= most_lost), None)
    store = shlex.quote(str(opened.datastore.path))
    advice = f"`knnmt reduce {store} -o NEW --dim {proposed}`" if proposed else f"keep all {entries.dim}"
    tell(f"dimensions  {advice}; by {sampled[1]:,} positions and {sampled[0]:,} sampled entries\n")
    return offs


def advise_on_search(
    opened: OpenStore,
    development: Development,
    config: RetrievalConfig,
    most_lost: float,
    text: str,
    tell: Callable[[str], None],
) -> list[SearchTradeOff]:
    """Tell the loss by the index at several settings, and a target with which it loses at most `most_lost`.

    text: the file that the development text comes from
    """
    offs: list[SearchTradeOff] = []
    for each in search_trade_offs(opened, development, config):
        if not offs:
            tell(f"{'probes':>8} {'recall':>7} {'variation':>10} {'nats lost':>10} {'ms/40':>8}")
        tell(
            f"{each.settings.probes:>8} {each.fidelity.recall:7.3f} {each.fidelity.variation:10.4f} "
            f"{each.loss:10.4f} {each.milliseconds:8.2f}"
        )
        offs.append(each)
    proposed = next((each.fidelity for each in offs if each.loss <= most_lost), None)
    index = f"knnmt index {shlex.quote(str(opened.datastore.path))}"
    if not offs:
        tell("search      exact: no loss\n")
    elif proposed is None:
        tell(f"search      every setting loses more than allowed; `{index} --kind exact` loses nothing\n")
    else:
        recall, variation = math.floor(100 * proposed.recall) / 100, math.ceil(1000 * proposed.variation) / 1000
        target = f"--recall {recall:g} --variation {variation:g}"
        tell(f"search      enough: `{index} --dev {shlex.quote(text)} {target}`\n")
    return offs


def _nearest(queries: Tensor, keys: Tensor, k: int) -> Found:
    """Exact search among keys in memory."""
    norms_sq = keys.square().sum(1)
    parts = []
    for some in torch.split(queries, 256):
        partly_sq, ids = torch.addmm(norms_sq, some, keys.T, alpha=-2).topk(k, largest=False)
        parts.append(((partly_sq + some.square().sum(1, keepdim=True)).clamp(min=0), ids))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
