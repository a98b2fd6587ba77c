"""The steps of a batch in compiled code: cache, search, and equations 2 and 3 in two calls per step besides the search.

It serves the usual case: every sentence has the same store and settings, on the CPU, without a gate or evidence, and
with a fixed or fading λ or a combiner that is compiled, too. It finds the same as `plain.PlainSteps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.engine.base import EncodedSources
from knnmt.errors import DatastoreDamagedError
from knnmt.native import library
from knnmt.native.structures import address, made
from knnmt.retrieval.cache import FIRST_CAPACITY, grown
from knnmt.retrieval.needs import Group, Need
from knnmt.retrieval.open_store import Chosen, Snapshot
from knnmt.retrieval.sentence_search import CompiledSentenceSearch
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.trained.compiled import CompiledNetwork


def _at(tensor: Tensor) -> int:
    return tensor.data_ptr()


def mixing_of(store: Snapshot, config: RetrievalConfig, network: CompiledNetwork | None) -> npt.NDArray[np.void]:
    """The settings of equations 2 and 3 for compiled code, as a structure `SentenceMixing`; it has no vocabulary yet.

    It refers to memory of the network.
    """
    mixing = made("SentenceMixing", k=min(config.k, store.size))
    mixture = mixing["mixture"]
    mixture["temperature"], mixture["weight"], mixture["fades"] = (
        config.temperature,
        config.interpolation_weight,
        config.fades,
    )
    fading = config.fading
    for name in ("scale", "width", "sentence_scale", "sentence_width"):
        mixture[name] = 1 if fading is None else getattr(fading, name)
    mixture["same_distance"] = store.same_distance
    mixture["network"] = 0 if network is None else network.address
    return mixing


def damage(store: Snapshot, vocabulary: int) -> DatastoreDamagedError:
    """The error if compiled code met impossible values."""
    return DatastoreDamagedError(
        f"{store.datastore.path}: a token of its entries is not one of the model's {vocabulary:,}, "
        "or its index names entries that it does not have. `knnmt verify` checks every byte."
    )


class CompiledSteps:
    """The retrieval of a batch, step by step."""

    LACKS = frozenset(
        {
            Need.EVIDENCE,
            Need.SEVERAL_SETTINGS,
            Need.EMPTY_STORE,
            Need.STORE_ON_GPU,
            Need.NO_LIBRARY,
            Need.FAST,
            Need.GATE,
            Need.OTHER_COMBINER,
            Need.WHOLE_STATES,
            Need.FLOAT32_SEGMENTS,
            Need.MANY_NEIGHBOURS,
        }
    )

    def __init__(self, group: Group, sentences: int, statistics: Statistics) -> None:
        self._native: Any = library()
        store, config = group.store, group.config
        self._network = network = CompiledNetwork.of(group.combiner, config.k)
        self._store = store
        self._config = config
        self._statistics = statistics
        self._first = True
        self._k = min(config.k, store.size)
        self._mixing = mixing_of(store, config, network)
        self._use_counts = config.use_counts
        self._sums, self._steps = torch.zeros(sentences), torch.zeros(sentences)
        self._cache = None if config.cache is None else _CompiledCache(self._native, config.cache, self._k, sentences)
        self._own: CompiledSentenceSearch | None = None

    def begin(
        self,
        encoded: EncodedSources,  # noqa: ARG002 - for fast
        sources: Sequence[Sequence[int]],  # noqa: ARG002
        chosen: Chosen,
    ) -> None:
        """Each sentence that is searched in its own segments gets the entries of these segments."""
        if chosen[0] is not None:
            with timing.stage("codes"):
                entries = self._store.index.entries
                scored = self._network is not None
                self._own = CompiledSentenceSearch(self._native, entries, chosen[0].entries, self._use_counts, scored)

    def mix(self, states: Tensor, scores: Tensor, history: Tensor, forced_prefix: int) -> Tensor:  # noqa: ARG002 - for gates
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
            self._mixing["vocabulary"] = scores.shape[1]
            changed = (self._sums, self._steps, scores, offsets)
            sound = self._own.mix(self._mixing, scores.stride(0), queries, *changed)
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
            address(self._mixing),  # its mixture comes first
            sentences,
            rows // sentences,
            self._k,
            *(len(values), scores.shape[1], scores.stride(0)),
            *(_at(each) for each in (distances_sq, ids, values)),
            *(None if each is None else _at(each) for each in (counts, said)),
            *(_at(each) for each in (self._sums, self._steps, scores, offsets)),
        )
        return self._sound(sound, scores, offsets)

    def _sound(self, sound: bool, scores: Tensor, offsets: Tensor) -> Tensor:
        """The offsets; an error if compiled code met impossible values."""
        if not sound:
            raise damage(self._store, scores.shape[1])
        return offsets

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
        missed = native.knnmt_cache_look(address(cache), self._scopes, each, torch.get_num_threads(), *places)
        misses = misses[:missed]
        if missed:
            found_sq, found = store.nearest(queries if missed == rows else queries[misses], self._k)
            distances_sq[misses], ids[misses] = found_sq, found
        kept = torch.arange(rows) if self._config.keep_hits else misses
        places = [_at(array) for array in (kept, queries, distances_sq, ids)]
        native.knnmt_cache_keep(address(cache), len(kept), each, *places)
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

    def _room_for(self, rows: int, dim: int) -> npt.NDArray[np.void]:
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
        keys, distances_sq, ids = (array.data_ptr() for array in self._arrays)
        shape = {"capacity": capacity, "dimensions": dim, "k": self._k}
        places = {"keys": keys, "distances_sq": distances_sq, "ids": ids, "written": self._written.data_ptr()}
        return made("Cache", threshold=self._config.threshold, **shape, **places)
