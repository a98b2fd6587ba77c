"""Retrieval for sentences that all search one store at every step, without waiting for the device.

No gate and no cache decide which rows search, so shapes are the same at every step, and a step can be captured and
replayed. Its state is at fixed addresses.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.index.base import SearchResult
from knnmt.native.gpu import kernel
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.distribution import interpolate_, token_log_probabilities
from knnmt.retrieval.open_store import Chosen, Snapshot
from knnmt.retrieval.sentence_search_on_device import SentenceKeys, SentenceSearchOnDevice
from knnmt.retrieval.step import SentenceSoFar

_MAX_ROWS = 32  # of a sentence; each has a warp
_MAX_NEIGHBOURS = 2048  # of a sentence's rows, as in mix.cu


GetOrMake = Callable[[Hashable, Callable[[], Any]], Any]
"""Returns the object that was made for a key, or makes it: `decoding.graph_buffers.GraphBuffers.get_or_make`."""


class GraphRetrieval:
    """The retrieval of a batch whose steps are captured.

    It holds the store as it was when the batch began, because replayed steps read it.

    steps: the steps for the present number of sentences, after `begin`
    """

    def __init__(self, store: Snapshot, config: RetrievalConfig) -> None:
        self._store = store
        self._config = config
        self._own: SentenceKeys | None = None
        self.steps: GraphSteps | None = None

    def begin(self, sentences: int, chosen: Chosen, get_or_make: GetOrMake) -> None:
        """Begin with this many sentences, including blanks, that have retrieved nothing yet."""
        store, spans = self._store, None
        if chosen[0] is not None:
            dim = store.index.entries.dim
            with timing.stage("segments"):
                self._own = own = get_or_make(("own", dim), lambda: SentenceKeys(dim, store.device))
                spans = own.put(store.index, chosen[0].entries)
        self.steps = self._of_size(sentences, get_or_make)
        self.steps.begin(spans)

    def keep(self, rows: Tensor, sentences: int, get_or_make: GetOrMake) -> None:
        """Sentence i takes over the state of sentence rows[i]; from `sentences` on all are blanks."""
        before, self.steps = self.steps, self._of_size(len(rows), get_or_make)
        if before is not None:
            self.steps.go_on(before, rows, sentences)

    def _of_size(self, sentences: int, get_or_make: GetOrMake) -> GraphSteps:
        store, config, own = self._store, self._config, self._own
        key = (store.number, config, sentences, None if own is None else own.number)
        made: GraphSteps = get_or_make(key, lambda: GraphSteps(store, config, sentences, own))
        return made


class GraphSteps:
    """The retrieval of a number of sentences. It does not keep what it searches: `GraphRetrieval` does."""

    def __init__(
        self, store: Snapshot, config: RetrievalConfig, sentences: int, own: SentenceKeys | None = None
    ) -> None:
        self._snapshot = weakref.ref(store)
        self._config = config
        self._combiner = DistanceCombiner(config, store.same_distance)
        self._distances = SentenceDistances(sentences, store.device)
        self._own = None if own is None else SentenceSearchOnDevice(own, store.index.entries.dim, sentences)
        self._kernel = kernel("mix", store.device)
        fading = config.fading
        of_fading = (1, 1, 1, 1) if fading is None else astuple(fading)
        log_weight = math.log(config.interpolation_weight) if config.interpolation_weight else -math.inf
        mixture = [log_weight, float(config.fades), *of_fading, config.squared_temperature, store.same_distance]
        with torch.inference_mode(False):
            self._mixture = torch.tensor(mixture, device=store.device)

    @property
    def _store(self) -> Snapshot:
        store = self._snapshot()
        assert store is not None, "the snapshot is held while its sentences are decoded"  # noqa: S101
        return store

    def begin(self, spans: Array | None = None) -> None:
        """Begin with sentences that have retrieved nothing yet. spans: of their own entries, if they have any"""
        self._distances.restart()
        if self._own is not None and spans is not None:
            self._own.begin(spans)

    def go_on(self, earlier: GraphSteps, rows: Tensor, sentences: int) -> None:
        """Sentence i takes over the state of sentence rows[i] of `earlier`; from `sentences` on all are blanks."""
        self._distances.take(earlier._distances, rows)
        if self._own is not None and earlier._own is not None:
            self._own.go_on(earlier._own, rows, sentences)

    def look(self, representations: Tensor) -> SearchResult:
        """The nearest entries of the rows, in a store that has entries; representations (sentences, width, dim)."""
        with timing.stage("retrieval"):
            store = self._store
            queries = store.project(representations.flatten(0, 1))
            k = min(self._config.k, store.size)
            return store.nearest(queries, k) if self._own is None else self._own.search(queries, k)

    def mix(self, found: SearchResult, log_probabilities: Tensor, scores: Tensor) -> Tensor:
        """Equation 3 in place; returns the scores, (sentences, width), plus the offset of each row.

        log_probabilities (sentences, width, vocabulary)
        """
        with timing.stage("interpolation"):
            if self._in_one_kernel(found, scores.shape[1]):
                return scores + self._mix_in_one(found, log_probabilities)
            so_far = self._distances.add(found[0][:, 0])
            return scores + self._mix_plainly(found, log_probabilities, so_far).view(scores.shape)

    def _mix_plainly(self, found: SearchResult, log_probabilities: Tensor, so_far: SentenceSoFar) -> Tensor:
        """Equation 3 in place by PyTorch; returns the offset of each row, (rows,)."""
        neighbours = self._store.neighbours(*found)
        counts = self._store.counts(neighbours.ids, self._config.use_counts)
        weights, log_lambda = self._combiner.weigh(neighbours, counts, so_far)
        log_p_knn = token_log_probabilities(neighbours.tokens, weights)
        return interpolate_(log_probabilities.flatten(0, 1), neighbours.tokens, log_p_knn, log_lambda)

    def _in_one_kernel(self, found: SearchResult, width: int) -> bool:
        return self._kernel is not None and width <= _MAX_ROWS and width * found[1].shape[1] <= _MAX_NEIGHBOURS

    def _mix_in_one(self, found: SearchResult, log_probabilities: Tensor) -> Tensor:
        """The same in compiled code; returns the offsets, (sentences, width)."""
        assert self._kernel is not None  # noqa: S101 - `_in_one_kernel` has checked this
        sentences, width, vocabulary = log_probabilities.shape
        offsets = torch.empty((sentences, width), device=log_probabilities.device)
        arguments = self.kernel_args(found, width)
        self._kernel(
            grid=(sentences, 1, 1),
            block=(32 * width, 1, 1),
            args=[log_probabilities, vocabulary, *arguments, offsets],
        )
        return offsets

    @property
    def k(self) -> int:
        """The most neighbours of a row."""
        return self._config.k

    def kernel_args(self, found: SearchResult, width: int) -> list[Any]:
        """The arguments of mix.cu and follow.cu about the store, the neighbours and the sentences so far."""
        store, (distances_sq, ids) = self._store, (each.contiguous() for each in found)
        counts = store.all_counts(self._config.use_counts)
        neighbours = [distances_sq, ids, store.size, store.values]
        of_counts = [self._mixture if counts is None else counts, int(counts is not None)]
        so_far = [self._distances.sums, self._distances.steps]
        return [self._mixture, width, ids.shape[1], *neighbours, *of_counts, *so_far]
