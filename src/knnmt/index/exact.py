"""Exact search on a CPU: every key is compared, in blocks, and the best are measured again by direct differences.

The keys of a small store are kept in float32. Those of a large store stay in its memory maps and are converted block by
block, which takes longer than the products. The scan computes |k|² - 2 q·k; the second measurement removes its rounding
errors. `knnmt.index.resident` does the same on a GPU.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt import timing
from knnmt.index.base import SearchResult, merge_top_k, nearest_first, nothing
from knnmt.index.entries import Entries, shared_tensor

_EXTRA_CANDIDATES = 8  # candidates beyond k that the scan proposes, to allow for its rounding errors
_ROWS = 256
_BLOCK = 1 << 14
_MAX_HELD_BYTES = 1 << 30  # of float32 keys held in memory
_RERANKED = 1 << 14  # candidates read at once
_WIDENED = 1 << 18  # numbers measured at once: a megabyte
_GROUP = 64  # columns that `smallest` compares as a group


def smallest(values: Tensor, k: int) -> SearchResult:
    """The k smallest numbers of each row, in no order, and their columns.

    As in beam search, the k smallest lie in the k groups with the smallest minima. This is faster than one wide top-k.
    """
    rows, width = values.shape
    whole = width // _GROUP * _GROUP
    if whole // _GROUP <= 2 * k:
        best, columns = values.topk(min(k, width), dim=1, largest=False, sorted=False)
        return best, columns
    minima = values[:, :whole].view(rows, -1, _GROUP).amin(-1)
    groups = minima.topk(k, dim=1, largest=False, sorted=False).indices
    columns = (groups[..., None] * _GROUP + torch.arange(_GROUP, device=values.device)).flatten(1)
    if whole < width:
        rest = torch.arange(whole, width, device=values.device).expand(rows, -1)
        columns = torch.cat([columns, rest], dim=1)
    best, place = values.gather(1, columns).topk(k, dim=1, largest=False, sorted=False)
    return best, columns.gather(1, place)


class _Scratch(threading.local):
    """Buffers for keys that are measured again, kept between searches: new buffers cost more than the measurement."""

    def __init__(self) -> None:
        """Runs once per thread; class attributes would be shared by all threads."""
        with torch.inference_mode(False):  # buffers made in inference mode could not be written later
            self.stored, self.widened = torch.empty(0), torch.empty(_WIDENED)

    def room(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """An array (rows, dim)."""
        needed = rows * dim
        if self.stored.dtype != dtype or len(self.stored) < needed:
            with torch.inference_mode(False):
                self.stored = torch.empty(needed, dtype=dtype)
        return self.stored[:needed].view(rows, dim)


_scratch = _Scratch()


def rerank(queries: Tensor, ids: Tensor, entries: Entries, k: int) -> SearchResult:
    """The k nearest among candidates, (rows, candidates) entry ids, by true distances to the store's own keys."""
    rows = max(1, _RERANKED // max(1, ids.shape[1]))
    if len(ids) <= rows:  # the usual case in a decoding step, where each operation counts
        return _rerank(queries, ids, entries, k)
    parts = [
        _rerank(*some, entries, k) for some in zip(torch.split(queries, rows), torch.split(ids, rows), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _rerank(queries: Tensor, ids: Tensor, entries: Entries, k: int) -> SearchResult:
    stored = _scratch.room(ids.numel(), entries.dim, entries.key_dtype)
    some_missing = ids.numel() > 0 and int(ids.min()) < 0
    entries.gather((ids.clamp(min=0) if some_missing else ids).reshape(-1), stored)
    distances_sq = _distances_of_stored(queries, stored.view(*ids.shape, entries.dim))
    finite = math.isfinite(float(distances_sq.sum()))
    return nearest_first(distances_sq, ids, k, some_missing or not finite)


def _distances_of_stored(queries: Tensor, keys: Tensor) -> Tensor:
    """Squared distances, (rows, candidates), of keys (rows, candidates, dim). It takes a few rows at a time, so that
    they stay in the cache of the CPU.
    """
    distances_sq = torch.empty(keys.shape[:2])
    row = keys.shape[1] * keys.shape[2]
    together = max(1, _WIDENED // max(1, row))
    widened = _scratch.widened if row <= _WIDENED else torch.empty(row)
    for first in range(0, len(keys), together):
        some = slice(first, first + together)
        part = keys[some]
        differences = widened[: part.numel()].view(part.shape).copy_(part).sub_(queries[some, None])
        torch.sum(differences.square_(), -1, out=distances_sq[some])
    return distances_sq


class _Block(NamedTuple):
    """Keys from entry `first` on, with their squared norms.

    norms_sq: infinite for entries that are not searched, so that they are never near
    """

    first: int
    keys: Tensor
    all_norms_sq: Tensor
    norms_sq: Tensor


class ExactIndex:
    """Exact search over the entries of a store from `first` to before `last`."""

    def __init__(self, entries: Entries, first: int = 0, last: int | None = None) -> None:
        self._entries = entries
        self.first = first
        self.last = entries.entries if last is None else last
        self._blocks: list[_Block] | None = None

    def at(self, entries: Entries) -> ExactIndex:
        """The same search over a later snapshot. Loaded keys are kept, and entries no longer searched are masked.

        Entries from `first` to before `last` must be the same ones in both.
        """
        later = ExactIndex(entries, self.first, self.last)
        if self._blocks is not None:
            later._blocks = [later._block(each.first, each.keys, each.all_norms_sq) for each in self._blocks]
        return later

    def search(self, queries: Tensor, k: int) -> SearchResult:
        with timing.stage("search"), torch.no_grad():  # not inference mode: a gate is trained on the distances
            queries = queries.to("cpu", torch.float32)
            parts = [self._search(rows, k) for rows in torch.split(queries, _ROWS)]
            return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _search(self, queries: Tensor, k: int) -> SearchResult:
        if self._blocks is None:
            self._blocks = self._load()
        rough = nothing(queries)
        for block in self._blocks:
            distances_sq = torch.addmm(block.norms_sq, queries, block.keys.float().T, alpha=-2)
            best, columns = smallest(distances_sq, k + _EXTRA_CANDIDATES)
            rough = merge_top_k([rough, (best, columns + block.first)], k + _EXTRA_CANDIDATES)
        return rerank(queries, rough[1], self._entries, k)

    def _load(self) -> list[_Block]:
        held = 4 * self._entries.dim * (self.last - self.first) <= _MAX_HELD_BYTES
        blocks = []
        for first, stretch in self._entries.blocks(_BLOCK, self.first, self.last):
            keys = shared_tensor(stretch)
            if held:
                keys = keys.float()
            norms_sq = keys.float().square().sum(1)
            self._entries.require_sound(norms_sq)
            blocks.append(self._block(first, keys, norms_sq))
        return blocks

    def _block(self, first: int, keys: Tensor, norms_sq: Tensor) -> _Block:
        live = self._entries.live
        masked = norms_sq if live is None else norms_sq.masked_fill(~live[first : first + len(keys)], float("inf"))
        return _Block(first, keys, norms_sq, masked)
