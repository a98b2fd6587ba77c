"""Equations 2 and 3, computed densely over all keys and the whole vocabulary, to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt.config import RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.open_store import OpenStore


class DenseMixture:
    """An engine whose distribution is λ p_kNN + (1 - λ) p_model, token by token. It is asked for whole prefixes."""

    def __init__(self, engine: TransformerEngine, store: Datastore, config: RetrievalConfig) -> None:
        self._engine, self._config, self._projection = engine, config, store.projection
        self._same_distance = OpenStore(store, exact=True).same_distance
        live = [(segment.arrays, segment.live_entries()) for segment in store.segments]
        self._keys = np.concatenate([arrays["keys"][kept] for arrays, kept in live]).astype(np.float64)
        self._values = np.concatenate([arrays["values"][kept] for arrays, kept in live])
        ones = [arrays.get("counts", np.ones(len(kept)))[kept] for arrays, kept in live]
        self._counts = np.concatenate(ones) if config.use_counts else np.ones(len(self._keys))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def log_probabilities(self, representations: Tensor) -> Tensor:
        """(1, 1, steps, dim) -> (1, 1, steps, vocabulary)"""
        model = self._engine.log_probabilities(representations)[0, 0].double().exp().numpy()
        states = representations[0, 0].double().numpy()
        if self._projection is not None:
            arrays = self._projection.arrays
            states = (states - arrays["mean"]) @ arrays["components"].astype(np.float64)
        mixed = np.empty_like(model)
        earlier: list[tuple[Array, tuple[Array, Array]]] = []
        distances: list[float] = []
        for step, state in enumerate(states):
            distances_sq, places = self._found(state, earlier)
            distances.append(float(np.sqrt(distances_sq[0])))
            shares = self._counts[places] * np.exp(-distances_sq / self._config.temperature)
            if self._config.fading is not None:
                shares *= np.exp(9 * self._same(distances_sq))
            p_knn = np.zeros(model.shape[1])
            np.add.at(p_knn, self._values[places], shares / shares.sum())
            weight = self._weight(distances)
            mixed[step] = weight * p_knn + (1 - weight) * model[step]
        return torch.from_numpy(np.log(mixed)).float()[None, None]

    def _found(self, state: Array, earlier: list[tuple[Array, tuple[Array, Array]]]) -> tuple[Array, Array]:
        cache = self._config.cache
        if cache is not None and earlier:
            away, found = min(
                ((float(np.linalg.norm(state - key)), found) for key, found in earlier), key=lambda x: x[0]
            )
            if away <= cache.threshold:
                if cache.keep_hits:
                    earlier.append((state, found))
                return found
        distances_sq = ((self._keys - state) ** 2).sum(1)
        places = distances_sq.argsort(kind="stable")[: self._config.k]
        earlier.append((state, (distances_sq[places], places)))
        return distances_sq[places], places

    def _same(self, distances_sq: Any) -> Any:
        return np.exp(-((distances_sq / self._same_distance**2) ** 2))

    def _weight(self, distances: list[float]) -> float:
        config, steps = self._config, len(distances)
        if config.fading is None:
            return config.interpolation_weight
        fading, mean = config.fading, sum(distances) / steps
        of_step = 1 / (1 + np.exp((distances[-1] - fading.scale) / fading.width))
        of_sentence = 1 / (1 + np.exp((mean - fading.sentence_scale) / fading.sentence_width))
        caution = 1 - min(1, distances[-1] / fading.scale) / (steps + 1)
        faded = float(config.interpolation_weight * of_step * of_sentence * caution)
        return faded + (1 - faded) * 0.99 * float(self._same(distances[-1] ** 2))
