"""A sentence's own entries on a GPU, in recorded work: the search of `sentence_stores.SentenceStores`.

The keys of a batch are at a fixed address, one sentence after the other, and each sentence has a span of them. So a
recorded search serves any sentences, whatever the number of their entries, without padding.

As in `knnmt.index.resident`, products find candidates and true differences decide. Queries are sums of two halves, so a
key can be missed only if more than eight others seem nearer because of the last digits of float32 sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.datastore.arrays import Array
from knnmt.index.base import SearchResult, nearest_first
from knnmt.index.entries import Entries
from knnmt.index.on_device import DeviceIndex
from knnmt.index.store_index import IndexSnapshot
from knnmt.native.gpu import kernel

MAX_NEIGHBOURS = 1016  # with the extra candidates, as many as own_nearest.cu lists
_ROWS = 8  # rows that a block of own_scores.cu processes
_MAX_DIM = 1536  # with more, their numbers would not fit the shared memory of a block
_MIN_CAPACITY = 1 << 15  # entries of a batch; with more, its steps are recorded again
_BLOCKS = 1024  # enough blocks to keep a GPU busy
_MAX_SPLITS = 64  # blocks for one sentence
_numbers = count()


def can_serve(entries: Entries, k: int, device: torch.device) -> bool:
    """Whether compiled code can search these entries on a device; on a CPU, PyTorch can."""
    if entries.key_dtype != torch.float16 or entries.dim > _MAX_DIM or k > MAX_NEIGHBOURS:
        return False
    if device.type == "cpu":
        return True
    scores = kernel("own_scores", device, STRIDE=_stride(entries.dim))
    return scores is not None and kernel("own_nearest", device) is not None


def _stride(dim: int) -> int:
    return -(-dim // 32) * 32


class SentenceKeys:
    """Memory for the entries of a batch's sentences, which the next batch reuses.

    keys: (capacity, dim padded with zeros) float16; norms_sq: (capacity,), their squared lengths
    ids: (capacity,), the entry of each
    number: of this memory; steps that were recorded with other memory have another number
    """

    def __init__(self, dim: int, device: torch.device) -> None:
        self._dim, self._device = dim, device
        self._make(_MIN_CAPACITY)

    def _make(self, capacity: int) -> None:
        with torch.inference_mode(False):
            self.keys = torch.zeros((capacity, _stride(self._dim)), dtype=torch.float16, device=self._device)
            self.norms_sq = torch.zeros(capacity, device=self._device)
            self.ids = torch.zeros(capacity, dtype=torch.long, device=self._device)
            self._on_host = torch.empty(capacity, dtype=torch.long, pin_memory=self._device.type == "cuda")
        self.number = next(_numbers)

    def put(self, index: IndexSnapshot, chosen: Sequence[Array]) -> Array:
        """Copy the entries of sentences here, one after the other; returns their spans, (sentences, 2).

        They replace those of the last batch, which must be finished. If there is not enough room, memory grows.
        """
        ends = np.cumsum([0, *map(len, chosen)])
        if total := int(ends[-1]):
            if total > len(self.ids):
                self._make(1 << (total - 1).bit_length())
            ids = self._on_host[:total]
            np.concatenate(chosen, out=ids.numpy())
            self.ids[:total].copy_(ids, non_blocking=True)
            gather_keys(index, ids, self.ids[:total], self.keys[:total])
            torch.linalg.vector_norm(self.keys[:total], dim=1, dtype=torch.float32, out=self.norms_sq[:total])
            self.norms_sq[:total].square_()
        spans: Array = np.stack([ends[:-1], ends[1:]], axis=1)
        return spans


def gather_keys(index: IndexSnapshot, ids: Tensor, on_device: Tensor, keys: Tensor) -> None:
    """Write the keys of entries into the first columns of `keys` on a device; their ids are given here and there.

    They come from the device if the store's keys are there or fit, otherwise from the host.
    """
    dim = index.entries.dim
    parts = [part for part in index.parts if isinstance(part, DeviceIndex)]
    if not parts or not _resident(parts, index.entries):
        gathered = torch.empty((len(ids), dim), dtype=torch.float16, pin_memory=keys.is_cuda)
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
    """Whether all keys are on the device, or may be copied there: half of the free memory is left for other things."""
    to_load = sum(part.last - part.first for part in parts if not part.loaded)
    device = parts[0].device
    if not to_load or device.type != "cuda":
        return True
    return 2 * to_load * 2 * (entries.dim + 8) <= torch.cuda.mem_get_info(device)[0]


class SentenceSearchOnDevice:
    """The entries of a number of sentences, in memory that they share with others.

    spans: (sentences, 2), at a fixed address. No two overlap: the scores of a sentence have the places of its entries.
    """

    def __init__(self, memory: SentenceKeys, dim: int, sentences: int) -> None:
        self._keys, self._norms_sq, self._ids, self._dim = memory.keys, memory.norms_sq, memory.ids, dim
        with torch.inference_mode(False):
            self.spans = torch.zeros((sentences, 2), dtype=torch.long, device=memory.ids.device)
            self._on_host = torch.zeros((sentences, 2), dtype=torch.long, pin_memory=self.spans.is_cuda)

    def begin(self, spans: Array) -> None:
        """Begin with sentences that have these spans; blanks, which come last, have no entries.

        The previous batch must be finished.
        """
        on_host = self._on_host.numpy()
        on_host[: len(spans)], on_host[len(spans) :] = spans, 0
        self.spans.copy_(self._on_host, non_blocking=True)

    def go_on(self, earlier: SentenceSearchOnDevice, rows: Tensor, sentences: int) -> None:
        """Sentence i takes over the entries of sentence rows[i] of `earlier`; from `sentences` on all are blanks."""
        self.spans.copy_(earlier.spans[rows])
        self.spans[sentences:] = 0

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """The k nearest entries of each row among those of its sentence, as in `knnmt.index.base.Index`.

        queries (sentences * width, dim) float32
        """
        with timing.stage("search"):
            score = kernel("own_scores", queries.device, STRIDE=self._keys.shape[1])
            nearest = kernel("own_nearest", queries.device)
            if score is None or nearest is None:
                return self._search_one_by_one(queries, k)
            rows, sentences, queries = len(queries), len(self.spans), queries.contiguous()
            width = rows // sentences
            scores = torch.empty(len(self._ids) * width, device=queries.device)
            distances_sq = torch.empty((rows, k), device=queries.device)
            ids = torch.empty((rows, k), dtype=torch.long, device=queries.device)
            score(
                grid=(max(4, min(_MAX_SPLITS, _BLOCKS // sentences)), sentences, -(-width // _ROWS)),
                block=(256, 1, 1),
                args=[self._keys, self._norms_sq, self.spans, queries, self._dim, width, scores],
            )
            of_keys = [self._keys, self._keys.shape[1], self.spans, self._ids]
            nearest(
                grid=(rows, 1, 1),
                block=(256, 1, 1),
                args=[*of_keys, scores, queries, self._dim, width, k, distances_sq, ids],
            )
            return distances_sq, ids

    def _search_one_by_one(self, queries: Tensor, k: int) -> SearchResult:
        """The same in PyTorch, which reads the spans on the host and so cannot be recorded."""
        width = len(queries) // len(self.spans)
        found = []
        for sentence, (begin, end) in enumerate(self.spans.tolist()):
            asked = queries[sentence * width : (sentence + 1) * width]
            differences = asked[:, None] - self._keys[begin:end, : self._dim].float()
            ids = self._ids[begin:end].expand(width, -1)
            found.append(nearest_first(differences.square().sum(2), ids, k))
        distances_sq, ids = (torch.cat(each) for each in zip(*found, strict=True))
        return distances_sq, ids
