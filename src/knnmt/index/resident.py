"""Exact search over keys in the memory of a GPU: products of halves find candidates, true differences decide.

What is found is at its true distance. With m for the keys' mean, a key k can be missed only if more than
`EXTRA_CANDIDATES` others are found whose squared distances exceed its own by less than |q - m| |k - m| / 512, twice
that for keys in float32: rounding q - m to halves, and such keys, does no more. With many queries the scores are
halves, too, counted from the best s of a sample, which makes that |q - m| |k - m| / 512 + |s - |k - q|²| / 1024. Of
real states none was missed.

A search waits for nothing on the host and has shapes that depend on the number of queries alone, so that it can be
captured in a CUDA graph once the first search has loaded the keys. The same code runs on a CPU, where it is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from knnmt.index.base import Found, nearest_first, nothing
from knnmt.index.reranking import nearest_among
from knnmt.index.selecting import columns_of_smallest

EXTRA_CANDIDATES = 8  # candidates beyond k that the scan hands on, against its rounding errors
GROUP = 64  # keys that the scan looks at together
_PADDED = 4 * GROUP  # the number of keys is filled up to a multiple: minima are then written four at a time
LOADED = 1 << 18  # keys that are brought to the device, or looked at before a search, at once
_BLOCK = 1 << 13  # the number of keys that are scanned at once is a multiple
MAX_QUERY_NUMBER = 2.0**15  # of a query's numbers, lest products become infinite; one so far away has no near keys
_LAST_DIGIT = 2.0**-11  # what the last digit of a half is worth, beside its first
BLOCK_BYTES = 1 << 25  # of scores at once: they are read again while the GPU's cache has them
_COPIED_BYTES = 1 << 27  # of keys that are copied at once to be looked at again
_MIN_HALVES_QUERIES = 32  # from which writing their scores takes as long as reading the keys
_SAMPLED_KEYS = 1 << 13
_MINIMA_BYTES = 1 << 31  # of the groups' minima, which bounds how many queries are searched at once
_MEASURED_BYTES = 1 << 31  # of candidates, which does so where k is large
_TO_FLOAT32 = hasattr(torch.ops.aten.mm, "dtype")  # from PyTorch 2.8 on, and only on GPUs


def product(rows: Tensor, columns: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Matrix products of halves, (a, n) and (n, b) or batches of them, added up in float32 and returned in a type."""
    if rows.is_cuda and dtype == torch.float16:
        return rows @ columns
    if not (_TO_FLOAT32 and rows.is_cuda):
        return (rows.float() @ columns.float()).to(dtype)
    multiply = torch.mm if rows.dim() == 2 else torch.bmm
    return multiply(rows, columns, out_dtype=torch.float32)


class Scan:
    """Keys in half precision, each with what completes its product with a query to a squared distance.

    |k - q|² = |k - m|² - 2 (q - m)·k, up to what is the same for all keys; m is the keys' mean, so that little is lost
    when q - m is rounded to halves. |k - m|² stands in two columns beside the key, a half and what that leaves, and a
    query has their worth there: one product does it all. A third is 1, by which all scores of a query can be shifted.
    Keys that are not there are infinitely far.

    rows: (count, dim + 3), both filled up to a multiple; keys are written into the first columns, then comes `complete`
    ends: what a query has behind its own numbers
    """

    def __init__(self, count: int, dim: int, device: torch.device) -> None:
        self.dim = dim
        padded = math.ceil(count / _PADDED) * _PADDED
        self.rows = torch.zeros((padded, math.ceil((dim + 3) / 8) * 8), dtype=torch.float16, device=device)
        self.rows[count:, dim] = float("inf")
        self.rows[:, dim + 2] = 1

    def complete(self, norms_sq: Tensor) -> None:
        """norms_sq (count,) float32: |k - m|²."""
        count = len(norms_sq)
        largest = float(norms_sq.max()) if count else 0.0
        digits = math.ceil(math.log2(max(largest, 1e-30)))
        worth = 2.0 ** max(-3, digits - 14)
        self._fitting = 2.0 ** min(0, 12 - digits)
        scaled = norms_sq / worth
        self._high = scaled.half()
        self.rows[:count, self.dim] = self._high
        self.rows[:count, self.dim + 1] = (scaled - self._high.float()) / _LAST_DIGIT
        ends = torch.tensor([worth, worth * _LAST_DIGIT], dtype=torch.float16)
        self.ends = torch.nn.functional.pad(ends, (0, self.rows.shape[1] - self.dim - 2)).to(self.rows.device)

    def mask(self, live: Tensor) -> None:
        """Put keys that are gone, False in (count,), infinitely far away, and no others."""
        self.rows[: len(live), self.dim] = self._high.masked_fill(~live.to(self.rows.device), float("inf"))

    def asked(self, queries: Tensor) -> Tensor:
        """Queries from the mean, (rows, dim) float32, as they are multiplied with: (rows, width) float16."""
        halves = (-2 * queries).clamp_(-MAX_QUERY_NUMBER, MAX_QUERY_NUMBER).half()
        return torch.cat([halves, self.ends.expand(len(queries), -1)], dim=1)

    def shift(self, asked: Tensor) -> None:
        """Have scores of queries fit halves, and the best lie near zero, where halves are fine, by a sample of keys."""
        if self._fitting < 1:
            asked *= self._fitting
        best = product(asked, self.rows[:: max(1, len(self.rows) // _SAMPLED_KEYS)].T).amin(1)
        asked[:, self.dim + 2] = -best.clamp_(-MAX_QUERY_NUMBER, MAX_QUERY_NUMBER)


class ResidentKeys:
    """Keys on a device, from blocks of them that make up (count, dim), float16 or float32.

    Keys in float16 are scanned as they are; those in float32 have a copy for it, from their mean and scaled.
    """

    def __init__(
        self,
        blocks: Iterable[Tensor],
        count: int,
        dim: int,
        dtype: torch.dtype,
        device: torch.device,
        require_sound: Callable[[Tensor], None] = lambda _: None,
    ) -> None:
        """require_sound: is called with the keys' mean, which is finite if all keys are"""
        self.count, self.dim, self.device = count, dim, device
        self._scan = Scan(count, dim, device)
        as_stored = dtype == torch.float16
        self.keys = self._scan.rows[:count, :dim] if as_stored else torch.empty((count, dim), device=device)
        first = 0
        for block in blocks:
            self.keys[first : first + len(block)] = block.to(device)
            first += len(block)
        parts = torch.split(self.keys, LOADED)
        total = sum((part.sum(0, dtype=torch.float64) for part in parts), torch.zeros(dim, device=device).double())
        self.mean = (total / max(count, 1)).float()
        require_sound(self.mean)
        farthest = max((float((part.float() - self.mean).abs().max()) for part in parts if count), default=1.0)
        # By a power of two that leaves room for queries many times as far away as any key.
        self.scale = 1.0 if as_stored else 2.0 ** min(10, 5 - math.ceil(math.log2(max(farthest, 1e-30))))
        norms_sq = torch.empty(count, device=device)
        for some, centred in self.blocks():
            norms_sq[some] = centred.square().sum(1)
            if not as_stored:
                self._scan.rows[some, :dim] = centred
        self._scan.complete(norms_sq)

    def mask(self, live: Tensor) -> None:
        """Leave out keys that are gone, False in (count,); in place, so that a captured search does, too."""
        self._scan.mask(live)

    def centred(self, vectors: Tensor) -> Tensor:
        """Keys or queries from the keys' mean and scaled, in float32: what all scans are of."""
        centred = vectors.float() - self.mean
        return centred if self.scale == 1 else centred.mul_(self.scale)

    def some(self, ids: Tensor) -> Tensor:
        """Keys by their numbers, (n,), centred: (n, dim)."""
        return self.centred(self.keys[ids])

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All keys, centred, in blocks: which they are, and they."""
        for first in range(0, self.count, LOADED):
            some = slice(first, min(first + LOADED, self.count))
            yield some, self.centred(self.keys[some])

    def search(self, queries: Tensor, k: int) -> Found:
        """As in `base.Index`; queries (rows, dim) float32 on the keys' device, ids counted from the first key."""
        if not self.count or not len(queries):
            return nearest_first(*nothing(queries), k)
        # differences; numbers and scores of the groups' keys
        row_bytes = (k + EXTRA_CANDIDATES) * (4 * self.dim + 12 * GROUP)
        at_once = max(1, min(_MINIMA_BYTES * GROUP // (4 * len(self._scan.rows)), _MEASURED_BYTES // row_bytes))
        parts = [self._search(rows, k) for rows in torch.split(queries, at_once)]
        return parts[0] if len(parts) == 1 else (torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts]))

    def _search(self, queries: Tensor, k: int) -> Found:
        asked = self._scan.asked(self.centred(queries))
        halves = len(queries) >= _MIN_HALVES_QUERIES
        if halves:
            self._scan.shift(asked)
        near = nearest_groups(asked, self._scan.rows, k + EXTRA_CANDIDATES, torch.float16 if halves else torch.float32)
        at_once = max(1, _COPIED_BYTES // (2 * near.shape[1] * asked.shape[1]))
        parts = [
            product(self._scan.rows.index_select(0, ids.flatten()).view(*ids.shape, -1), some[..., None])
            for ids, some in zip(torch.split(near, at_once), torch.split(asked, at_once), strict=True)
        ]
        scores = (parts[0] if len(parts) == 1 else torch.cat(parts))[..., 0]
        place = columns_of_smallest(scores, min(k + EXTRA_CANDIDATES, near.shape[1]))
        best = scores.gather(1, place)
        # A query that is no number has no scores, not infinite ones, and finds nothing either.
        return nearest_among(self.keys, queries, torch.where(best < float("inf"), near.gather(1, place), -1), k)


def nearest_groups(asked: Tensor, keys: Tensor, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The keys of the `count` groups whose nearest keys are nearest, (rows, count * GROUP), which have the `count`
    nearest keys among them.

    asked (rows, width) and keys (padded, width), whose products are the scores, in this type. Scores are looked at once
    and forgotten, in blocks. A group is every so-maniest key of a block, because minima over rows of numbers that lie
    far apart are read side by side.
    """
    rows, groups = len(asked), len(keys) // GROUP
    block = max(_BLOCK, BLOCK_BYTES // (dtype.itemsize * rows) // _BLOCK * _BLOCK)
    minima = torch.empty((rows, groups), dtype=dtype, device=keys.device)
    for first in range(0, len(keys), block):
        scores = product(asked, keys[first : first + block].T, dtype)
        some = minima[:, first // GROUP : (first + block) // GROUP]
        torch.amin(scores.view(rows, GROUP, -1), 1, out=some)
    numbers = columns_of_smallest(minima, min(count, groups))
    members = torch.arange(GROUP, device=keys.device)
    if block >= len(keys):
        return (members * groups + numbers[..., None]).flatten(1)
    begins = numbers // (block // GROUP) * (block // GROUP)  # of the group's block, in groups
    apart = (groups - begins).clamp_(max=block // GROUP)
    return (members * apart[..., None] + (begins * (GROUP - 1) + numbers)[..., None]).flatten(1)
