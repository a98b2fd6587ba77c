"""Retrieval of sentences that all search one store at every step, in work that never waits for the device.

No gate and no cache say which rows search, so shapes are the same at every step, and a step can be recorded and
replayed. What it keeps from step to step stands at addresses that stay.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from torch import Tensor

from knnmt import timing
from knnmt.config import RetrievalConfig
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.distribution import interpolate_, token_log_probabilities
from knnmt.retrieval.open_store import OpenStore


@dataclass(frozen=True, slots=True)
class Looked:
    """What rows found: tokens and log p_kNN of them, (rows, k) each, and log λ, (rows,)."""

    tokens: Tensor
    log_p_knn: Tensor
    log_lambda: Tensor


class PlainSteps:
    """The retrieval of a number of sentences. It does not keep the store open: whoever decodes does."""

    def __init__(self, store: OpenStore, config: RetrievalConfig, sentences: int) -> None:
        self._store = weakref.ref(store)
        self._config = config
        self._combiner = DistanceCombiner(config)
        self._distances = SentenceDistances(sentences, store.device)

    def begin(self) -> None:
        """Sentences that have retrieved nothing yet."""
        self._distances.restart()

    def go_on(self, earlier: PlainSteps, rows: Tensor) -> None:
        """Sentence i goes on as sentence rows[i] of others."""
        self._distances.take(earlier._distances, rows)

    def look(self, representations: Tensor) -> Looked:
        """representations (sentences, width, dim)."""
        with timing.stage("retrieval"):
            store = self._store()
            assert store is not None, "the store is open while its sentences are decoded"  # noqa: S101
            neighbours = store.search(store.project(representations.flatten(0, 1)), self._config.k)
            so_far = self._distances.add(neighbours.distances_sq[:, 0])
            weights, log_lambda = self._combiner(neighbours, store.counts(neighbours.ids), so_far)
            return Looked(neighbours.tokens, token_log_probabilities(neighbours.tokens, weights), log_lambda)

    @staticmethod
    def mix(looked: Looked, log_probabilities: Tensor) -> Tensor:
        """Equation 3 in place, as `BatchRetrieval.mix`; log_probabilities (sentences, width, vocabulary)."""
        with timing.stage("interpolation"):
            rows = log_probabilities.flatten(0, 1)
            offset = interpolate_(rows, looked.tokens, looked.log_p_knn, looked.log_lambda)
            return offset.view(log_probabilities.shape[:2])
