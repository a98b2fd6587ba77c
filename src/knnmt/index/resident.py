"""Exact search over keys in the memory of a GPU: products in float16 find candidates, true differences decide.

Every result has its true distance. Let m be the keys' mean. A key k can be missed only if more than `EXTRA_CANDIDATES`
other keys are found whose squared distances exceed its own by less than |q - m| |k - m| / 512, or twice that for keys
in float32: rounding q - m, and such keys, to float16 causes no larger error. With many queries the scores are float16,
too, relative to the best score s of a sample. The bound is then |q - m| |k - m| / 512 + |s - |k - q|²| / 1024. With
real states, no key was missed.

The host never waits during a search, and shapes depend only on the number of queries. So a search can be captured in a
CUDA graph once the first search has loaded the keys. The same code runs on a CPU, where it is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from knnmt.index.base import SearchResult, nearest_first, nothing
from knnmt.index.reranking import nearest_among
from knnmt.index.selecting import columns_of_smallest
from knnmt.progress import ignore

EXTRA_CANDIDATES = 8  # candidates beyond k that the scan proposes, to allow for its rounding errors
GROUP = 64  # keys that the scan compares as a group
_PADDED = 4 * GROUP  # the number of keys is padded to a multiple of this, so that minima are written four at a time
LOADED = 1 << 18  # keys that are copied to the device, or examined before a search, at once
_BLOCK = 1 << 13  # the number of keys scanned at once is a multiple of this
MAX_QUERY_NUMBER = 2.0**15  # limit of a query's numbers: products stay finite, and a query so far away has no near keys
_LAST_DIGIT = 2.0**-11  # the last digit of a float16 number relative to its first
BLOCK_BYTES = 1 << 25  # of scores at once: they are read again while they are in the GPU's cache
_COPIED_BYTES = 1 << 27  # of keys that are copied at once to be measured again
_MIN_HALVES_QUERIES = 32  # from this number on, writing the scores takes as long as reading the keys
_SAMPLED_KEYS = 1 << 13
_MINIMA_BYTES = 1 << 31  # of the groups' minima; this limits the number of queries searched at once
_MEASURED_BYTES = 1 << 31  # of candidates; this limits the number of queries if k is large
_TO_FLOAT32 = hasattr(torch.ops.aten.mm, "dtype")  # from PyTorch 2.8 on, and only on GPUs


def product(rows: Tensor, columns: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Matrix products of float16, (a, n) and (n, b) or batches of them, summed in float32 and returned in `dtype`."""
    if rows.is_cuda and dtype == torch.float16:
        return rows @ columns
    if not (_TO_FLOAT32 and rows.is_cuda):
        return (rows.float() @ columns.float()).to(dtype)
    multiply = torch.mm if rows.dim() == 2 else torch.bmm
    return multiply(rows, columns, out_dtype=torch.float32)


class Scan:
    """Keys in float16, with extra columns that turn the product with a query into a squared distance.

    |k - q|² = |k - m|² - 2 (q - m)·k, up to a term that is the same for all keys. m is the keys' mean, so that rounding
    q - m to float16 loses little. Two columns beside the key hold |k - m|²: its float16 value and the remainder. A
    query has their weights in the same columns, so one product does it all. A third column is 1; it lets all scores of
    a query be shifted. Padding and removed keys are infinitely far away.

    rows: (count, dim + 3), both padded to a multiple; keys are written into the first columns, then `complete` follows
    ends: the numbers that follow a query's own numbers
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
        """Put exactly the removed keys, False in (count,), infinitely far away."""
        self.rows[: len(live), self.dim] = self._high.masked_fill(~live.to(self.rows.device), float("inf"))

    def asked(self, queries: Tensor) -> Tensor:
        """Centred queries, (rows, dim) float32, in the form that is multiplied with the rows: (rows, width) float16."""
        halves = (-2 * queries).clamp_(-MAX_QUERY_NUMBER, MAX_QUERY_NUMBER).half()
        return torch.cat([halves, self.ends.expand(len(queries), -1)], dim=1)

    def shift(self, asked: Tensor) -> None:
        """Fit scores into float16, and shift the best, by a sample of keys, to near zero, where float16 is precise."""
        if self._fitting < 1:
            asked *= self._fitting
        best = product(asked, self.rows[:: max(1, len(self.rows) // _SAMPLED_KEYS)].T).amin(1)
        asked[:, self.dim + 2] = -best.clamp_(-MAX_QUERY_NUMBER, MAX_QUERY_NUMBER)


class ResidentKeys:
    """Keys on a device, from blocks that make up (count, dim), float16 or float32.

    Keys in float16 are scanned as they are; keys in float32 have a centred and scaled copy for the scan.
    """

    def __init__(
        self,
        blocks: Iterable[Tensor],
        count: int,
        dim: int,
        dtype: torch.dtype,
        device: torch.device,
        require_sound: Callable[[Tensor], None] = ignore,
    ) -> None:
        """require_sound: called with the keys' mean, which is finite if all keys are"""
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
        # The scale is a power of two that leaves room for queries many times as far away as any key.
        self.scale = 1.0 if as_stored else 2.0 ** min(10, 5 - math.ceil(math.log2(max(farthest, 1e-30))))
        norms_sq = torch.empty(count, device=device)
        for some, centred in self.blocks():
            norms_sq[some] = centred.square().sum(1)
            if not as_stored:
                self._scan.rows[some, :dim] = centred
        self._scan.complete(norms_sq)

    def mask(self, live: Tensor) -> None:
        """Leave out the removed keys, False in (count,). It works in place, so that a captured search follows."""
        self._scan.mask(live)

    def centred(self, vectors: Tensor) -> Tensor:
        """Keys or queries relative to the keys' mean, and scaled, in float32, as all scans use them."""
        centred = vectors.float() - self.mean
        return centred if self.scale == 1 else centred.mul_(self.scale)

    def some(self, ids: Tensor) -> Tensor:
        """Keys by their numbers, (n,), centred: (n, dim)."""
        return self.centred(self.keys[ids])

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All keys, centred, in blocks: the slice of each block, and its keys."""
        for first in range(0, self.count, LOADED):
            some = slice(first, min(first + LOADED, self.count))
            yield some, self.centred(self.keys[some])

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """As in `base.Index`; queries (rows, dim) float32 on the keys' device, ids counted from the first key."""
        if not self.count or not len(queries):
            return nearest_first(*nothing(queries), k)
        # This counts differences, and numbers and scores of the groups' keys.
        row_bytes = (k + EXTRA_CANDIDATES) * (4 * self.dim + 12 * GROUP)
        at_once = max(1, min(_MINIMA_BYTES * GROUP // (4 * len(self._scan.rows)), _MEASURED_BYTES // row_bytes))
        parts = [self._search(rows, k) for rows in torch.split(queries, at_once)]
        return parts[0] if len(parts) == 1 else (torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts]))

    def _search(self, queries: Tensor, k: int) -> SearchResult:
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
        # The scores of a NaN query are NaN, not infinite; it finds nothing either.
        return nearest_among(self.keys, queries, torch.where(best < float("inf"), near.gather(1, place), -1), k)


def nearest_groups(asked: Tensor, keys: Tensor, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The keys of the `count` groups with the smallest minima, (rows, count * GROUP). They include the `count` nearest
    keys.

    asked (rows, width) and keys (padded, width): their products, of type `dtype`, are the scores. Scores are computed
    in blocks, read once and dropped. The keys of a group lie at equal intervals in a block, because the scores of
    neighbouring groups are then read side by side.
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
    begins = numbers // (block // GROUP) * (block // GROUP)  # where the group's block begins, in groups
    apart = (groups - begins).clamp_(max=block // GROUP)
    return (members * apart[..., None] + (begins * (GROUP - 1) + numbers)[..., None]).flatten(1)
