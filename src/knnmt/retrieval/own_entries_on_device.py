"""A sentence's own entries on a GPU, in work that is recorded: the search of `sentence_stores.SentenceStores`.

Keys of a batch lie one sentence after the other at an address that stays, and each sentence knows from where to where.
So a recorded search serves any sentences, whatever the number of their entries, and none is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.datastore.arrays import Array
from knnmt.index.base import Found, nearest_first
from knnmt.index.entries import Entries
from knnmt.index.on_device import DeviceIndex
from knnmt.index.store_index import IndexSnapshot
from knnmt.native.gpu import kernel

MAX_NEIGHBOURS = 1024  # as in own_nearest.cu
_MAX_ROWS = 8  # that a block measures together
_MAX_SHARED_BYTES = 48 << 10  # for their numbers
_MIN_CAPACITY = 1 << 15  # entries of a batch: with more, its steps are recorded anew
_BLOCKS = 1024  # that keep a GPU busy
_MAX_SPLITS = 64  # blocks for one sentence
_numbers = count()


def can_serve(entries: Entries, k: int, device: torch.device) -> bool:
    """Whether compiled code can search entries of such keys on a device; on a CPU, PyTorch can."""
    if device.type == "cpu":
        return True
    sizes = _sizes(entries.dim, 1, entries.key_dtype)
    fits = _MAX_ROWS * 4 * sizes["STRIDE"] <= _MAX_SHARED_BYTES and k <= MAX_NEIGHBOURS
    kernels = ("own_distances", sizes), ("own_nearest", {})
    return fits and all(kernel(name, device, **constants) is not None for name, constants in kernels)


def _sizes(dim: int, rows: int, dtype: torch.dtype) -> dict[str, int]:
    """What own_distances.cu is compiled for."""
    return {"DIM": dim, "STRIDE": -(-dim // 8) * 8, "ROWS": rows, "HALVES": int(dtype == torch.float16)}


class OwnKeys:
    """Memory for the entries of a batch's sentences, which is used again by the next batch.

    keys: (capacity, dim filled up with zeros); ids: (capacity,), the entry of each
    number: of this memory; steps that were recorded over other memory have another
    """

    def __init__(self, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self._stride, self._dtype, self._device = _sizes(dim, 1, dtype)["STRIDE"], dtype, device
        self._make(_MIN_CAPACITY)

    def _make(self, capacity: int) -> None:
        with torch.inference_mode(False):
            self.keys = torch.zeros((capacity, self._stride), dtype=self._dtype, device=self._device)
            self.ids = torch.zeros(capacity, dtype=torch.long, device=self._device)
        self.number = next(_numbers)

    def put(self, index: IndexSnapshot, chosen: Sequence[Array]) -> Array:
        """Bring the entries of a batch's sentences here; from where to where each sentence has them, (sentences, 2)."""
        ends = np.cumsum([0, *map(len, chosen)])
        total = int(ends[-1])
        if total > len(self.ids):
            self._make(1 << (total - 1).bit_length())
        ids = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *chosen]))
        self.ids[:total] = ids.pin_memory() if self._device.type == "cuda" else ids
        gather_keys(index, ids, self.ids[:total], self.keys[:total])
        spans: Array = np.stack([ends[:-1], ends[1:]], axis=1)
        return spans


def gather_keys(index: IndexSnapshot, ids: Tensor, on_device: Tensor, keys: Tensor) -> None:
    """Write the keys of entries, by their ids here and on a device, into the first columns of `keys` there.

    They come from the device if the store's keys are there or fit, else from the host.
    """
    dim = index.entries.dim
    parts = [part for part in index.parts if isinstance(part, DeviceIndex)]
    if not len(ids):
        return
    if not parts or not _resident(parts, index.entries):
        gathered = torch.empty((len(ids), dim), dtype=keys.dtype, pin_memory=keys.is_cuda)
        index.entries.gather(ids, gathered)
        index.entries.require_sound(gathered.sum(1, dtype=torch.float32))
        keys[:, :dim] = gathered
    elif len(parts) == 1 and dim == keys.shape[1]:
        torch.index_select(parts[0].keys.keys, 0, on_device, out=keys)
    else:
        for part in parts:
            mine = torch.from_numpy(np.flatnonzero((ids >= part.first) & (ids < part.last))).to(keys.device)
            keys[mine, :dim] = part.keys.keys[on_device[mine] - part.first]


def _resident(parts: Sequence[DeviceIndex], entries: Entries) -> bool:
    """Whether all keys are on the device, or may be brought there: half of what is free is left for other things."""
    to_load = sum(part.last - part.first for part in parts if not part.loaded)
    if not to_load:
        return True
    device = parts[0].device
    free = int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 1 << 62
    bytes_each = (entries.dim + 8) * (2 if entries.key_dtype == torch.float16 else 6)
    return 2 * to_load * bytes_each <= free


class OwnEntriesOnDevice:
    """The entries of a number of sentences, in memory that they share with others.

    spans: (sentences, 2), at an address that stays
    """

    def __init__(self, memory: OwnKeys, dim: int, sentences: int) -> None:
        self._keys, self._ids, self._dim = memory.keys, memory.ids, dim
        with torch.inference_mode(False):
            self.spans = torch.zeros((sentences, 2), dtype=torch.long, device=memory.ids.device)

    def begin(self, spans: Array) -> None:
        """Sentences with entries there; blanks, which come last, have none."""
        self.spans.zero_()
        self.spans[: len(spans)] = torch.from_numpy(spans)

    def go_on(self, earlier: OwnEntriesOnDevice, rows: Tensor) -> None:
        """Sentence i goes on as sentence rows[i] of others."""
        self.spans.copy_(earlier.spans[rows])

    def search(self, queries: Tensor, k: int) -> Found:
        """The k nearest entries of each row in its own sentence's, as in `knnmt.index.base.Index`.

        queries (sentences * width, dim) float32
        """
        with timing.stage("search"):
            if not queries.is_cuda:
                return self._search_one_by_one(queries, k)
            rows, sentences = len(queries), len(self.spans)
            width = rows // sentences
            distances = torch.empty(len(self._ids) * width, device=queries.device)
            together = min(width, _MAX_ROWS)
            sizes = _sizes(self._dim, together, self._keys.dtype)
            measure, nearest = (
                kernel("own_distances", queries.device, **sizes),
                kernel("own_nearest", queries.device),
            )
            assert measure is not None and nearest is not None, "as `can_serve` said"  # noqa: S101, PT018
            splits = max(4, min(_MAX_SPLITS, _BLOCKS // sentences))
            measure(
                grid=(splits, sentences, -(-width // together)),
                block=(256, 1, 1),
                args=[self._keys, self.spans, queries.contiguous(), width, distances],
            )
            distances_sq = torch.empty((rows, k), device=queries.device)
            ids = torch.empty((rows, k), dtype=torch.long, device=queries.device)
            nearest(
                grid=(rows, 1, 1),
                block=(256, 1, 1),
                args=[self.spans, self._ids, distances, width, k, distances_sq, ids],
            )
            return distances_sq, ids

    def _search_one_by_one(self, queries: Tensor, k: int) -> Found:
        """The same in PyTorch, which looks at the spans on the host and so cannot be recorded."""
        width = len(queries) // len(self.spans)
        found = []
        for (begin, end), asked in zip(self.spans.tolist(), queries.split(width), strict=True):
            differences = asked[:, None] - self._keys[begin:end, : self._dim].float()
            ids = self._ids[begin:end].expand(width, -1)
            found.append(nearest_first(differences.square().sum(2), ids, k))
        distances_sq, ids = (torch.cat(each) for each in zip(*found, strict=True))
        return distances_sq, ids
