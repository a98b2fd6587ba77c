"""Compiled search over a FAISS index of four-bit codes, if `knnmt.native` was built.

It reads the lists from FAISS's memory and the keys from the store's memory maps, so nothing is stored twice.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt.datastore.arrays import Array
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.native import library
from knnmt.native.structures import address, made

_ENTRIES = 16  # the number of values of four bits
_KEYS = (torch.float16, torch.float32)


class FourBitSearch:
    """Search in the current lists of a FAISS index, and in the keys of the snapshot that they were made from."""

    def __init__(self, native: ctypes.CDLL, lists: Any, of_lists: list[Array], entries: Entries) -> None:
        self._search = native.knnmt_search
        arrays = entries.key_arrays
        of_keys = [
            np.array([array.ctypes.data for array in arrays], np.uint64),
            np.cumsum([len(array) for array in arrays], dtype=np.int64),
        ]
        self.of_lists = of_lists
        self._held = (lists, of_keys, entries)  # keeps alive the memory that the pointers point to
        centroids, codes, ids, sizes = map(address, of_lists)
        self._lists = made("Lists", count=lists.nlist, dimensions=lists.d, parts=lists.pq.M)
        self._lists["centroids"], self._lists["codes"] = centroids, codes
        self._lists["ids"], self._lists["sizes"] = ids, sizes
        self._keys = made("Keys", dimensions=entries.dim, segments=len(arrays))
        self._keys["halves"] = entries.key_dtype == torch.float16
        self._keys["rows"], self._keys["ends"] = map(address, of_keys)
        self._keys["live"] = 0 if entries.live is None else entries.live.data_ptr()

    @classmethod
    def of(cls, faiss: Any, lists: Any, entries: Entries, earlier: FourBitSearch | None = None) -> FourBitSearch | None:
        """The compiled search of an index. None without compiled code, for other codes, or for an empty index.

        earlier: a search of the same, unchanged lists with another snapshot; it saves the time to find the lists
        """
        native = library()
        if native is None or not isinstance(lists, faiss.IndexIVFPQFastScan) or entries.key_dtype not in _KEYS:
            return None
        packed = lists.bbs == 32 and lists.pq.M % 2 == 0
        of_keys = not lists.by_residual and lists.metric_type == faiss.METRIC_L2
        fitting = 0 < lists.ntotal <= entries.entries  # otherwise other memory would be read
        if not (packed and of_keys and fitting):
            return None
        return cls(native, lists, _arrays_of(faiss, lists) if earlier is None else earlier.of_lists, entries)

    def search(
        self, queries: Tensor, reduced: Tensor, products: Tensor, k: int, candidates: int, probes: int, reach: float
    ) -> SearchResult:
        """The k nearest live entries among the `candidates` that the codes propose; (rows, k) each.

        queries (rows, dim); reduced (rows, the codes' dim); products (rows, lists): each centre's squared norm minus
        twice its product with the reduced query. All are float32, on the CPU.
        """
        rows = len(queries)
        shapes = tuple(int(self._lists[name][0]) for name in ("dimensions", "count"))
        shapes = (int(self._keys["dimensions"][0]), *shapes)
        if tuple(each.shape for each in (queries, reduced, products)) != tuple((rows, width) for width in shapes):
            raise ValueError(f"expected queries of {shapes[0]} dimensions, got {tuple(queries.shape)}")  # or memory
        distances_sq, ids = torch.empty((rows, k)), torch.empty((rows, k), dtype=torch.long)
        given = [each.contiguous() for each in (queries, reduced, products)]
        limits = made("Limits", k=k, candidates=max(k, candidates), probes=probes, reach=reach)
        places = (each.data_ptr() for each in (*given, distances_sq, ids))
        self._search(*map(address, (self._lists, self._keys, limits)), rows, torch.get_num_threads(), *places)
        return distances_sq, ids


def _arrays_of(faiss: Any, lists: Any) -> list[Array]:
    """The arrays of `_Lists`: centroids, and where the codes and the ids of each list are, and how many."""
    codes, inverted, numbers = lists.pq, lists.invlists, range(lists.nlist)

    def places(of_list: Any) -> Array:
        return np.array([faiss.rev_swig_ptr(of_list(number), 1).ctypes.data for number in numbers], np.uint64)

    centroids = faiss.vector_to_array(codes.centroids).reshape(codes.M, _ENTRIES, codes.dsub).transpose(0, 2, 1)
    sizes = np.array([inverted.list_size(number) for number in numbers], np.int64)
    return [np.ascontiguousarray(centroids), places(inverted.get_codes), places(inverted.get_ids), sizes]
