"""The steps of a batch in compiled code: cache, search, and equations 2 and 3 in two calls per step besides the search.

It serves the usual case: every sentence has the same store and settings, on the CPU, without a gate or evidence, and
with a fixed or fading λ or a combiner that is compiled, too (`retriever.steps_for`). It finds the same as
`plain.PlainSteps`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.engine.base import EncodedSources
from knnmt.errors import DatastoreDamagedError
from knnmt.native import library
from knnmt.retrieval.cache import FIRST_CAPACITY, grown
from knnmt.retrieval.open_store import Chosen, ChosenEntries, Snapshot
from knnmt.retrieval.own_entries import CompiledOwnEntries, Drafting
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import Combiner
from knnmt.retrieval.trained.compiled import CompiledNetwork

_MAX_NEIGHBOURS = 256  # as in step.cpp


class _Cache(ctypes.Structure):
    """As in step.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("capacity", "dimensions", "k")),
        ("threshold", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("keys", "distances_sq", "ids", "written")),
    )


class _Mixture(ctypes.Structure):
    """As in mixing.h."""

    _fields_ = (
        ("temperature", ctypes.c_float),
        ("weight", ctypes.c_float),
        ("fades", ctypes.c_int32),
        *((name, ctypes.c_float) for name in ("scale", "width", "sentence_scale", "sentence_width", "same_distance")),
        ("network", ctypes.c_void_p),
    )


class _OwnMixing(ctypes.Structure):
    """As in own.cpp."""

    _fields_ = (
        ("mixture", _Mixture),
        ("k", ctypes.c_int32),
        ("vocabulary", ctypes.c_int64),
    )


def _at(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


class CompiledSteps:
    """The retrieval of a batch, step by step."""

    def __init__(
        self,
        native: Any,
        store: Snapshot,
        config: RetrievalConfig,
        sentences: int,
        statistics: Statistics,
        network: CompiledNetwork | None = None,
    ) -> None:
        self._native = native
        self._network = network
        self._store = store
        self._config = config
        self._statistics = statistics
        self._first = True
        self._unsearched = sentences  # if steps are taken in turn: how many sentences have not searched yet
        self._k = min(config.k, store.size)
        fading = config.fading
        of_fading = (1, 1, 1, 1) if fading is None else astuple(fading)
        self._mixture = _Mixture(
            config.temperature, config.interpolation_weight, config.fades, *of_fading, store.same_distance
        )
        if network is not None:
            self._mixture.network = network.address
        self._use_counts = config.use_counts
        self._sums, self._steps = torch.zeros(sentences), torch.zeros(sentences)
        self._cache = None if config.cache is None else _CompiledCache(native, config.cache, self._k, sentences)
        self._own: CompiledOwnEntries | None = None
        self._chosen: ChosenEntries | None = None
        self._own_mixing = _OwnMixing()
        # For each of the last steps that were taken together: sums and steps (2, rows) after it, and its neighbours.
        self._after, self._places = torch.empty((2, 0)), torch.empty((0, self._k), dtype=torch.long)

    @classmethod
    def of(
        cls,
        store: Snapshot,
        config: RetrievalConfig,
        sentences: int,
        statistics: Statistics,
        combiner: Combiner | None = None,
    ) -> CompiledSteps | None:
        """Steps with this store. None if compiled code is not built or the store is not on the CPU, for too many
        neighbours, for segments with keys in float32, for a cache that compares whole states or counts borrowed
        searches, and for a combiner that is not compiled.
        """
        native, network = library(), CompiledNetwork.of(combiner, config.k)
        if combiner is not None and network is None:
            return None
        if config.segments is not None and store.index.entries.key_dtype != torch.float16:
            return None
        if native is None or store.device.type != "cpu" or config.k > _MAX_NEIGHBOURS:
            return None
        if config.cache is not None and (statistics.borrowed_distances is not None or config.cache.whole_states):
            return None
        return cls(native, store, config, sentences, statistics, network)

    def begin(
        self,
        encoded: EncodedSources,  # noqa: ARG002 - for fast
        sources: Sequence[Sequence[int]],  # noqa: ARG002
        chosen: Chosen,
    ) -> None:
        """Each sentence that is searched in its own segments gets the entries of these segments."""
        if chosen[0] is not None:
            with timing.stage("segments"):
                entries = self._store.index.entries
                scored = self._network is not None
                self._own = CompiledOwnEntries(self._native, entries, chosen[0].entries, self._use_counts, scored)
                self._own_mixing = _OwnMixing(self._mixture, self._k)
                self._chosen = chosen[0]

    def mix(self, states: Tensor, scores: Tensor, history: Tensor, told: int) -> Tensor:  # noqa: ARG002 - for gates
        """As `retriever.RetrievalSteps` says."""
        with timing.stage("retrieval"):
            offset = self._mix(states, scores)
        self._first = False
        return offset

    def _mix(self, states: Tensor, scores: Tensor) -> Tensor:
        statistics, first = self._statistics, self._first
        rows, sentences = len(states), len(self._sums)
        queries = self._store.project(states).contiguous()
        offsets = torch.empty(rows)
        if self._own is not None:
            self._own_mixing.vocabulary = scores.shape[1]
            changed = (self._sums, self._steps, scores, offsets)
            sound = self._own.mix(self._own_mixing, scores.stride(0), queries, *changed)
            statistics.count(rows, rows, 0, first)
            return self._sound(sound, scores, offsets)
        if self._cache is None:
            distances_sq, ids = self._store.nearest(queries, self._k)
            statistics.count(rows, rows, 0, first)
        else:
            distances_sq, ids = self._cache.search(self._store, queries, statistics, first)
        values, counts = self._store.values, self._store.all_counts(self._use_counts)
        said = None if self._network is None else self._store.own_log_probabilities
        sound = self._native.knnmt_mix(
            ctypes.byref(self._mixture),
            sentences,
            rows // sentences,
            self._k,
            *(ctypes.c_int64(each) for each in (len(values), scores.shape[1], scores.stride(0))),
            *(_at(each) for each in (distances_sq, ids, values)),
            *(None if each is None else _at(each) for each in (counts, said)),
            *(_at(each) for each in (self._sums, self._steps, scores, offsets)),
        )
        return self._sound(sound, scores, offsets)

    def mix_in_turn(self, states: Tensor, scores: Tensor, turns: Sequence[int]) -> Tensor:
        """Equation 3 on several steps of each sentence, in place; returns the offset of all scores of each row.

        states (rows, dim); scores (rows, vocabulary) float32; turns: how many rows, one after the other, each sentence
        has. `accept` says how many of them count. It is for sentences that are searched in their own segments.
        """
        assert self._own is not None  # noqa: S101 - `BatchRetrieval.in_turn` has checked this
        with timing.stage("retrieval"):
            queries = self._store.project(states).contiguous()
            rows = len(queries)
            offsets, self._places = torch.empty(rows), torch.empty((rows, self._k), dtype=torch.long)
            self._after = torch.empty(2, rows)
            self._own_mixing.vocabulary = scores.shape[-1]
            changed = (self._sums, self._steps, *self._after, self._places, scores, offsets)
            sound = self._own.mix_in_turn(self._own_mixing, scores.stride(0), turns, queries, *changed)
            return self._sound(sound, scores, offsets)

    def accept(self, last: Sequence[int], steps: int) -> None:
        """Each sentence continues after one of the rows, last (sentences,). steps: how many rows count as searches"""
        self._sums, self._steps = self._after.index_select(1, torch.tensor(last))
        self.count(steps)

    def count(self, searches: int) -> None:
        """Count searches of a pass or several; each sentence has a first one."""
        first = min(searches, self._unsearched)
        self._unsearched -= first
        if first:
            self._statistics.count(first, first, 0, first=True)
        self._statistics.count(searches - first, searches - first, 0, first=False)

    @property
    def projected(self) -> bool:
        """Whether states are projected before the search."""
        return self._store.projection is not None

    @property
    def sums_and_steps(self) -> tuple[Tensor, Tensor]:
        """Distances and steps of the sentences so far, (sentences,) each, which compiled passes change."""
        self._sums, self._steps = self._sums.contiguous(), self._steps.contiguous()
        return self._sums, self._steps

    def described(self, drafting: Drafting, vocabulary: int) -> tuple[int, int, int]:
        """Where compiled passes find the settings of mixture and drafts, and the entries. It completes the settings."""
        assert self._own is not None  # noqa: S101 - as above
        self._own_mixing.vocabulary = drafting.vocabulary = vocabulary
        drafting.k = self._k
        return ctypes.addressof(self._own_mixing), ctypes.addressof(drafting), self._own.address

    def first_draft(self, sentence: int, drafting: Drafting, vocabulary: int) -> list[int]:
        """The first tokens of a segment that is almost the same as a sentence of the batch; [] if there is none."""
        assert self._chosen is not None  # noqa: S101 - sentences are drafted in their own segments
        return self._chosen.first_draft(sentence, drafting.most, drafting.end, vocabulary)

    def require_sound(self, sound: bool, vocabulary: int) -> None:
        """Raise an error if compiled code met impossible values."""
        if not sound:
            raise DatastoreDamagedError(
                f"{self._store.datastore.path}: a token of its entries is not one of the model's {vocabulary:,}, "
                "or its index names entries that it does not have. `knnmt verify` checks every byte."
            )

    def draft(
        self,
        drafting: Drafting,
        last: Sequence[int],
        newest: Sequence[int],
        sure: Sequence[float],
        limits: Sequence[int],
    ) -> list[list[int]]:
        """The tokens that may come next in each sentence, after the row of `accept` that chose its newest token."""
        assert self._own is not None  # noqa: S101 - as above
        drafting.k, drafting.vocabulary = self._k, self._own_mixing.vocabulary
        return self._own.draft(drafting, self._places, last, newest, sure, limits)

    def _sound(self, sound: bool, scores: Tensor, offsets: Tensor) -> Tensor:
        """The offsets; an error if compiled code met impossible values."""
        self.require_sound(sound, scores.shape[1])
        return offsets

    def same_as(self, other: object) -> bool:
        """Whether both search the same store in the same way, and count together."""
        if not isinstance(other, CompiledSteps):
            return False
        alike = self._store is other._store and self._config == other._config
        alike = alike and CompiledNetwork.same(self._network, other._network)
        return alike and self._statistics is other._statistics

    def replace(self, place: int, other: CompiledSteps, sentence: int) -> None:
        """A sentence of another batch, which has retrieved nothing, takes the place of one that is done."""
        assert self._own is not None  # noqa: S101 - as above
        assert other._own is not None  # noqa: S101
        self._own.replace(place, other._own, sentence)
        self._sums[place], self._steps[place] = 0, 0
        self._unsearched += 1

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]."""
        rows = torch.tensor(sentences, dtype=torch.long)
        self._sums, self._steps = self._sums[rows], self._steps[rows]
        if self._own is not None:
            self._own.keep(sentences)
        if self._cache is not None:
            self._cache.keep(rows)


class _CompiledCache:
    """`cache.RetrievalCache`, compiled. Arrays (scopes, capacity, ...); a full scope overwrites its oldest states."""

    def __init__(self, native: Any, config: CacheConfig, k: int, sentences: int) -> None:
        self._native = native
        self._config = config
        self._k = k
        self._scopes = sentences if config.scope == "sentence" else 1
        self._arrays: list[Tensor] = []
        self._written = torch.zeros(self._scopes, dtype=torch.long)
        self._most_written = 0

    def search(self, store: Snapshot, queries: Tensor, statistics: Statistics, first: bool) -> tuple[Tensor, Tensor]:
        """The neighbours of each row, from an earlier state nearby or the store: squared distances, ids (rows, k)."""
        native, rows = self._native, len(queries)
        each = rows // self._scopes
        cache = self._room_for(each, queries.shape[1])
        distances, misses = torch.empty(rows), torch.empty(rows, dtype=torch.long)
        distances_sq, ids = torch.empty((rows, self._k)), torch.empty((rows, self._k), dtype=torch.long)
        places = [_at(array) for array in (queries, distances, distances_sq, ids, misses)]
        missed = native.knnmt_cache_look(ctypes.byref(cache), self._scopes, each, torch.get_num_threads(), *places)
        misses = misses[:missed]
        if missed:
            found_sq, found = store.nearest(queries if missed == rows else queries[misses], self._k)
            distances_sq[misses], ids[misses] = found_sq, found
        kept = torch.arange(rows) if self._config.keep_hits else misses
        places = [_at(array) for array in (kept, queries, distances_sq, ids)]
        native.knnmt_cache_keep(ctypes.byref(cache), len(kept), each, *places)
        self._most_written += each
        statistics.count(rows, missed, rows - missed, first)
        statistics.count_hits(distances, distances.isfinite())
        return distances_sq, ids

    def keep(self, sentences: Tensor) -> None:
        """Sentence i takes over the state of sentence sentences[i]."""
        if self._config.scope == "sentence":
            self._scopes = len(sentences)
            self._written = self._written[sentences]
            self._arrays = [array[sentences] for array in self._arrays]

    def _room_for(self, rows: int, dim: int) -> _Cache:
        """The cache as compiled code sees it, with room for another step of this many rows per scope."""
        shapes = ((dim,), (self._k,), (self._k,))
        if not self._arrays:
            dtypes = (torch.float32, torch.float32, torch.long)
            capacity = min(FIRST_CAPACITY, self._config.capacity)
            self._arrays = [
                torch.zeros((self._scopes, capacity, *shape), dtype=dtype)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            ]
        capacity = self._arrays[0].shape[1]
        needed = self._most_written + rows
        larger = min(max(needed, 2 * capacity), self._config.capacity)
        if needed > capacity and larger > capacity:
            self._arrays = [grown(array, larger, 0) for array in self._arrays]
            capacity = larger
        places = [_at(array) for array in (*self._arrays, self._written)]
        return _Cache(capacity, dim, self._k, self._config.threshold, *places)
