"""How close an index is to exact search: by the neighbours that it finds, and by their distribution."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from knnmt.index.base import Index, SearchResult
from knnmt.index.entries import Entries
from knnmt.index.exact import rerank
from knnmt.retrieval.distribution import log_weights

BATCHES = (5, 40, 80)
_ROUNDS = 7
_FEWER_ROUNDS, _LONG_MS = 3, 300  # for searches so long that a slow moment does not matter


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The loss of an index against exact search over the full keys.

    recall: the share of its results that are as near as the true k nearest
    variation: the mean total variation between its p_kNN and the true one, 0 to 1
    """

    recall: float
    variation: float


def fidelity(
    queries: Tensor, found: SearchResult, true: SearchResult, entries: Entries, temperature: float
) -> Fidelity:
    """Compare the results of an index with the true neighbours, for the same queries.

    queries (rows, dim); found and true: distances and ids, (rows, k)
    """
    present = true[1] >= 0
    farthest_sq = true[0].masked_fill(~present, 0).amax(1, keepdim=True)
    distances_sq, _ = rerank(queries, found[1], entries, found[1].shape[1])  # an index's own may be approximate
    near = distances_sq <= farthest_sq * (1 + 1e-5)
    variation = total_variation(_distribution(found, entries, temperature), _distribution(true, entries, temperature))
    return Fidelity(float(near.sum() / present.sum().clamp(min=1)), float(variation.mean()))


def _distribution(found: SearchResult, entries: Entries, temperature: float) -> tuple[Tensor, Tensor]:
    distances_sq, ids = found
    tokens = torch.where(ids >= 0, entries.values_of(ids.clamp(min=0)).long(), -1)
    return tokens, log_weights(distances_sq, temperature).exp()


def total_variation(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Half the sum of |p(y) - q(y)|, (rows,), for distributions given as tokens and shares, (rows, k) each."""
    tokens = torch.cat([one[0], other[0]], dim=1)
    signed = torch.cat([one[1], -other[1]], dim=1)
    same = (tokens[:, :, None] == tokens[:, None, :]).to(signed.dtype)
    differences = torch.matmul(same, signed[..., None])[..., 0].abs()
    return (differences / same.sum(-1)).sum(1) / 2


def milliseconds_per_batch(index: Index, queries: Tensor, k: int) -> dict[int, float]:
    """The median time of a search for 5, 40 and 80 queries at once."""
    medians = {}
    for size in BATCHES:
        times = []
        for number in range(_ROUNDS):
            rows = (torch.arange(size) + number * size) % len(queries)
            batch = queries[rows]
            started = time.perf_counter()
            index.search(batch, k)
            times.append(1000 * (time.perf_counter() - started))
            if len(times) >= _FEWER_ROUNDS and sum(times) > _LONG_MS:
                break
        medians[size] = statistics.median(times)
    return medians
