"""A sentence's own entries in compiled code, for keys in float16: the search of `sentence_stores.SentenceStores`.

Keys are held in int8; the distances of the nearest are computed from the store's own memory (`native/own.cpp`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.datastore.arrays import Array
from knnmt.index.base import Found
from knnmt.index.entries import Entries


class _Own(ctypes.Structure):
    """As in own.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("count", "dimensions")),
        *(
            (name, ctypes.c_void_p)
            for name in ("keys", "ids", "values", "counts", "said", "panels", "bias", "scales", "starts", "lost")
        ),
        *((name, ctypes.c_float) for name in ("most_lost", "longest")),
    )


class Drafting(ctypes.Structure):
    """How tokens are drafted, as in own.cpp.

    k: of the search; voters: at most this many entries vote for the next token; most: tokens per draft, at most
    least: a draft ends before the first token whose probability is lower
    """

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("k", "voters", "most")),
        *((name, ctypes.c_int64) for name in ("vocabulary", "end")),
        ("least", ctypes.c_double),
    )


class CompiledOwnEntries:
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
        self._others: list[CompiledOwnEntries | None] = [None] * len(chosen)  # whose memory sentences refer to
        distinct = {id(ids): ids for ids in chosen}
        bias = self._hold(list(distinct.values()), merged, scored)
        entries.require_sound(bias)  # of squared lengths: infinity and NaN cannot be sorted
        places = {each: place for place, each in enumerate(distinct)}
        self._put([self._at[places[id(ids)]] for ids in chosen])

    def _hold(self, chosen: Sequence[Array], merged: bool, scored: bool) -> Tensor:
        """Hold keys in int8, in one block of memory for all sentences; returns minus half of their squared lengths."""
        panel = self._native.knnmt_panel()
        wholes = [-(-len(ids) // panel) * panel for ids in chosen]
        ends = np.cumsum([0, *wholes])
        every, stride = int(ends[-1]), -(-self._dim // panel) * panel
        ids = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *chosen]))
        keys, values = self._entries.addresses(ids), self._entries.values_of(ids)
        counts = self._entries.counts_of(ids, merged)
        said = self._entries.log_probabilities_of(ids) if scored else None
        codes = torch.empty((every, stride), dtype=torch.int8)
        bias, scales, starts, lost = numbers = torch.empty((4, every))
        self._kept = (ids, keys, values, counts, said, codes, numbers)
        self.held_keys = len(ids)
        self._at = (_Own * len(chosen))()
        first = 0
        for number, (mine, begin) in enumerate(zip(chosen, ends.tolist(), strict=False)):
            at: list[int | None] = [keys.data_ptr() + 8 * first, ids.data_ptr() + 8 * first]
            at += [None if each is None else each.data_ptr() + 4 * first for each in (values, counts, said)]
            of_keys = [each.data_ptr() + 4 * begin for each in (bias, scales, starts, lost)]
            self._at[number] = _Own(len(mine), self._dim, *at, codes.data_ptr() + begin * stride, *of_keys)
            first += len(mine)
        self._native.knnmt_own_prepare(ctypes.byref(self._at), len(chosen), torch.get_num_threads())
        return torch.cat([bias[begin : begin + len(mine)] for mine, begin in zip(chosen, ends.tolist(), strict=False)])

    def _put(self, sentences: Sequence[_Own]) -> None:
        self._at = (_Own * len(sentences))(*sentences)

    @property
    def address(self) -> int:
        """Where compiled code finds the entries of the sentences."""
        return ctypes.addressof(self._at)

    def search(self, queries: Tensor, k: int) -> Found:
        """The k nearest entries of each row among those of its sentence, as in `knnmt.index.base.Index`.

        queries (sentences * width, dim) float32
        """
        queries = queries.contiguous()
        rows, sentences = self._rows_each(queries)
        distances_sq, ids = torch.empty((len(queries), k)), torch.empty((len(queries), k), dtype=torch.long)
        places = [ctypes.c_void_p(each.data_ptr()) for each in (queries, distances_sq, ids)]
        with timing.stage("search"):
            sizes = (sentences, rows, k, torch.get_num_threads())
            self._native.knnmt_own_search(ctypes.byref(self._at), *sizes, *places)
        return distances_sq, ids

    def mix(self, mixing: ctypes.Structure, stride: int, queries: Tensor, *changed: Tensor) -> bool:
        """The search and the mixing of knnmt_mix in one call; False if it met impossible values.

        mixing: `OwnMixing`; stride: of the rows of scores; queries (rows, dim) float32
        changed: sums, steps, scores, offsets
        """
        rows, sentences = self._rows_each(queries)
        with timing.stage("search"):
            at = (ctypes.addressof(mixing), ctypes.addressof(self._at))
            places = (each.data_ptr() for each in (queries, *changed))
            threads = torch.get_num_threads()
            return bool(self._native.knnmt_own_mix(*at, sentences, rows, threads, stride, *places))

    def mix_in_turn(
        self, mixing: ctypes.Structure, stride: int, turns: Sequence[int], queries: Tensor, *changed: Tensor
    ) -> bool:
        """The same if a sentence's rows are consecutive steps.

        turns: how many rows each sentence has
        changed: sums and steps (sentences,) before them; then the results: sums and steps (rows,), places (rows, k),
            which of its sentence's entries each row found, scores, offsets
        """
        count = len(self._at)
        if len(turns) != count or min(turns) < 0 or sum(turns) != len(queries):
            raise ValueError(f"expected rows of {count} sentences, got {list(turns)} and {len(queries)} rows")
        self._require(queries)
        with timing.stage("search"):
            rows = (ctypes.c_int32 * count)(*turns)
            at = (ctypes.addressof(mixing), ctypes.addressof(self._at), count, ctypes.addressof(rows))
            places = (each.data_ptr() for each in (queries, *changed))
            return bool(self._native.knnmt_own_mix_in_turn(*at, torch.get_num_threads(), stride, *places))

    def draft(
        self,
        drafting: Drafting,
        places: Tensor,
        rows: Sequence[int],
        newest: Sequence[int],
        sure: Sequence[float],
        limits: Sequence[int],
    ) -> list[list[int]]:
        """For each sentence, the tokens that follow in the entries with its newest token (`knnmt_own_draft`, own.cpp).

        places: (rows, k), as `mix_in_turn` found them; rows, newest: for each sentence, which of these rows chose its
        newest token, and that token; sure: the probability of a token that all entries name; limits: of tokens
        """
        count, most = len(self._at), drafting.most
        if {len(rows), len(newest), len(sure), len(limits)} != {count} or not 0 <= min(rows) <= max(rows) < len(places):
            raise ValueError(f"expected rows of {count} sentences among {len(places)}, got {list(rows)}")
        last, tokens = (ctypes.c_int32 * count)(*rows), (ctypes.c_int64 * count)(*newest)
        chances, most_each = (ctypes.c_double * count)(*sure), (ctypes.c_int32 * count)(*limits)
        drafts, lengths = (ctypes.c_int64 * (count * most))(), (ctypes.c_int32 * count)()
        at = (ctypes.addressof(drafting), ctypes.addressof(self._at), count, places.data_ptr())
        self._native.knnmt_own_draft(*at, last, tokens, chances, most_each, drafts, lengths)
        return [drafts[number * most : number * most + length] for number, length in enumerate(lengths)]

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
        self._put([self._at[place] for place in sentences])
        self._others = [self._others[place] for place in sentences]

    def replace(self, place: int, other: CompiledOwnEntries, sentence: int) -> None:
        """A sentence of another batch, with its entries, takes the place of one that is done."""
        self._at[place], self._others[place] = other._at[sentence], other
