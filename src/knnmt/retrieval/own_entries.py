"""A sentence's own entries in compiled code, for keys in float16: the search of `sentence_stores.SentenceStores`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from knnmt import timing
from knnmt.datastore.arrays import Array
from knnmt.engine.product import Matrix
from knnmt.index.base import Found
from knnmt.index.entries import Entries


class _Own(ctypes.Structure):
    """As in own.cpp."""

    _fields_ = (("matrix", Matrix), ("keys", ctypes.c_void_p), ("ids", ctypes.c_void_p), ("count", ctypes.c_int64))


class CompiledOwnEntries:
    """The entries of each sentence of a batch, searched by the rows of that sentence."""

    def __init__(self, native: Any, entries: Entries, chosen: Sequence[Array]) -> None:
        """chosen: the entry ids of each sentence, ascending"""
        self._native = native
        self._dim = entries.dim
        self._kept = [self._prepared(entries, torch.from_numpy(ids)) for ids in chosen]
        self._put()

    def _prepared(self, entries: Entries, ids: Tensor) -> tuple[tuple[Tensor, ...], _Own]:
        panel, count, dim = self._native.knnmt_panel(), len(ids), entries.dim
        whole = -(-count // panel) * panel
        keys = torch.empty((count, dim), dtype=torch.float16)
        entries.gather(ids, keys)
        panels, bias = torch.empty((whole, dim), dtype=torch.float16), torch.empty(whole)
        at = [ctypes.c_void_p(each.data_ptr()) for each in (panels, bias)]
        sizes = (ctypes.c_int64(count), ctypes.c_int64(dim))
        if count:
            self._native.knnmt_own_prepare(ctypes.c_void_p(keys.data_ptr()), *sizes, *at)
            entries.require_sound(bias[:count])  # of squared lengths; others than numbers cannot be sorted
        matrix = Matrix(0, dim, whole, panels.data_ptr(), bias.data_ptr(), None, None)
        return (keys, panels, bias, ids), _Own(matrix, keys.data_ptr(), ids.data_ptr(), count)

    def _put(self) -> None:
        self._at = (_Own * len(self._kept))(*(own for _, own in self._kept))

    def search(self, queries: Tensor, k: int) -> Found:
        """The k nearest entries of each row in its own sentence's, as in `knnmt.index.base.Index`.

        queries (sentences * width, dim) float32
        """
        rows, sentences = len(queries), len(self._kept)
        if queries.shape[1] != self._dim or queries.dtype != torch.float32 or rows % sentences:
            raise ValueError(f"expected rows of {self._dim} numbers in float32 for {sentences} sentences")
        queries = queries.contiguous()
        distances_sq, ids = torch.empty((rows, k)), torch.empty((rows, k), dtype=torch.long)
        places = [ctypes.c_void_p(each.data_ptr()) for each in (queries, distances_sq, ids)]
        with timing.stage("search"):
            sizes = (sentences, rows // sentences, k, torch.get_num_threads())
            self._native.knnmt_own_search(ctypes.byref(self._at), *sizes, *places)
        return distances_sq, ids

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i goes on as sentences[i] was; those not named have left the batch."""
        self._kept = [self._kept[place] for place in sentences]
        self._put()
