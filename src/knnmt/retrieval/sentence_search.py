"""A sentence's own entries in compiled code, for keys in float16: the search of `sentence_stores.SentenceStores`.

Codes of the keys are compared at every step; the distances of the nearest are computed from the store's own memory
(`native/sentence_search.cpp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from knnmt import timing
from knnmt.datastore.arrays import Array
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.native import library
from knnmt.native.structures import address, made
from knnmt.retrieval.sentence_stores import SentenceStores


def sentence_search(
    entries: Entries, chosen: Sequence[Array], device: torch.device
) -> CompiledSentenceSearch | SentenceStores:
    """The chosen entries of each sentence, ascending ids, for searching: in compiled code if it can."""
    native = library() if device.type == "cpu" and entries.key_dtype == torch.float16 else None
    return (
        SentenceStores(entries, chosen, device) if native is None else CompiledSentenceSearch(native, entries, chosen)
    )


class CompiledSentenceSearch:
    """The entries of each sentence of a batch, searched by the rows of that sentence.

    held_keys: how many keys are held; a key that sentences share counts once
    """

    def __init__(
        self, native: Any, entries: Entries, chosen: Sequence[Array], merged: bool = False, scored: bool = False
    ) -> None:
        """chosen: the entry ids of each sentence, ascending; merged: also count entries that pruning merged; scored:
        also hold the model's own log-probabilities of the entries
        """
        self._native = native
        self._dim = entries.dim
        self._entries = entries  # whose memory maps are read at every step
        distinct = {id(ids): ids for ids in chosen}
        at = self._hold(list(distinct.values()), merged, scored)
        places = {each: place for place, each in enumerate(distinct)}
        self._at = at[[places[id(ids)] for ids in chosen]]

    def _hold(self, chosen: Sequence[Array], merged: bool, scored: bool) -> npt.NDArray[np.void]:
        """Hold the codes of keys, in one block of memory for all sentences; returns structures `SentenceEntries`."""
        panel, codes_of = self._native.knnmt_panel(), self._entries.codes(self._native)
        counts_each = np.array([len(mine) for mine in chosen], np.int64)
        ends = np.cumsum([0, *(-(-counts_each // panel) * panel)])
        every = int(ends[-1])
        ids = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *chosen]))
        keys, values = self._entries.addresses(ids), self._entries.values_of(ids)
        counts = self._entries.counts_of(ids, merged)
        said = self._entries.log_probabilities_of(ids) if scored else None
        codes = torch.empty((every, codes_of.kept // 2), dtype=torch.uint8)
        halves, rounded_off, beyond, code_lengths = numbers = torch.empty((4, every))
        self._kept = (codes_of, ids, keys, values, counts, said, codes, numbers)
        self.held_keys = len(ids)
        at = made("SentenceEntries", len(chosen))
        firsts = np.cumsum([0, *counts_each])[:-1]
        for name, array, bytes_each in (
            ("keys", keys, 8),
            ("ids", ids, 8),
            ("values", values, 4),
            ("counts", counts, 4),
            ("said", said, 4),
        ):
            if array is not None:
                at[name] = array.data_ptr() + bytes_each * firsts
        panels = at["panels"]
        panels["count"], panels["codes"] = counts_each, codes.data_ptr() + codes.stride(0) * ends[:-1]
        for name, array in (
            ("halves", halves),
            ("rounded_off", rounded_off),
            ("beyond", beyond),
            ("code_lengths", code_lengths),
        ):
            panels[name] = array.data_ptr() + 4 * ends[:-1]
        if not codes_of.prepare(at):
            self._entries.require_sound(torch.tensor(torch.nan))
        return at

    @property
    def addresses(self) -> npt.NDArray[np.uintp]:
        """Where compiled code finds the entries of each sentence."""
        return np.uintp(self._at.ctypes.data) + np.arange(len(self._at), dtype=np.uintp) * np.uintp(self._at.itemsize)

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """The k nearest entries of each row among those of its sentence, as in `knnmt.index.base.Index`.

        queries (sentences * width, dim) float32
        """
        queries = queries.contiguous()
        rows, sentences = self._rows_each(queries)
        distances_sq, ids = torch.empty((len(queries), k)), torch.empty((len(queries), k), dtype=torch.long)
        places = [each.data_ptr() for each in (queries, distances_sq, ids)]
        with timing.stage("search"):
            sizes = (sentences, rows, k, torch.get_num_threads())
            self._native.knnmt_sentence_search(address(self._at), *sizes, *places)
        return distances_sq, ids

    def mix(self, mixing: npt.NDArray[np.void], stride: int, queries: Tensor, *changed: Tensor) -> bool:
        """The search and the mixing of knnmt_mix in one call; False if it met impossible values.

        mixing: a structure `SentenceMixing`; stride: of the rows of scores; queries (rows, dim) float32
        changed: sums, steps, scores, offsets
        """
        rows, sentences = self._rows_each(queries)
        with timing.stage("search"):
            at = (address(mixing), address(self._at))
            places = (each.data_ptr() for each in (queries, *changed))
            threads = torch.get_num_threads()
            return bool(self._native.knnmt_sentence_mix(*at, sentences, rows, threads, stride, *places))

    def _rows_each(self, queries: Tensor) -> tuple[int, int]:
        """The rows per sentence and the number of sentences; an error for other shapes, which compiled code trusts."""
        rows, sentences = len(queries), len(self._at)
        self._require(queries)
        if rows % sentences:
            raise ValueError(f"expected as many rows of each of {sentences} sentences, got {rows}")
        return rows // sentences, sentences

    def _require(self, queries: Tensor) -> None:
        if queries.shape[1] != self._dim or queries.dtype != torch.float32 or not queries.is_contiguous():
            raise ValueError(f"expected rows of {self._dim} numbers in float32, got {tuple(queries.shape)}")

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]; sentences not named have left the batch."""
        self._at = self._at[list(sentences)]
