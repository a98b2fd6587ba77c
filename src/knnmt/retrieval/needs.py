"""What the steps of a search may need. Each implementation declares which of these it lacks.

The fastest implementation that lacks nothing serves a search (`decoding.search.backend_for`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

from knnmt.config import RetrievalConfig
from knnmt.native import library
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.sentence_search_on_device import can_serve
from knnmt.retrieval.step import Combiner, Gate
from knnmt.retrieval.trained.compiled import CompiledNetwork

MAX_NEIGHBOURS = 256  # in compiled code on a CPU, as in step.cpp


class Need(Enum):
    """A need, in words that say why an implementation without it cannot serve."""

    CPU = "the model is not on a GPU"
    ANY_SHAPE = "steps of this model cannot be captured"
    PYTORCH = "no compiled code for this model, device and type of numbers"
    HISTORY = "sequences of tokens are forbidden, so steps look back at the text"
    REQUIRED_CONTENT = "translations must have required content"
    EVIDENCE = "evidence is recorded"
    SEVERAL_SETTINGS = "sentences search in different ways"
    WHOLE_STORE = "the whole store is searched"
    EMPTY_STORE = "the store is empty"
    STORE_ON_GPU = "the store is not on a CPU"
    NO_LIBRARY = "nothing was compiled"
    FAST = "Fast kNN-MT is used"
    GATE = "a gate is used"
    COMBINER = "a combiner is used"
    OTHER_COMBINER = "the combiner is not compiled"
    CACHE = "a cache is used"
    WHOLE_STATES = "the cache compares whole states, or counts borrowed searches"
    REDUCED_KEYS = "keys were reduced"
    FLOAT32_KEYS = "keys are in float32"
    FLOAT32_SEGMENTS = "keys of segments are in float32"
    NO_KERNEL = "no kernel searches the segments' keys"
    MANY_NEIGHBOURS = "more neighbours are used than compiled code has memory for"


@dataclass(frozen=True, slots=True)
class Group:
    """Sentences that retrieve in the same way, by their numbers in the batch.

    store: as it was when the batch began
    """

    store: Snapshot
    config: RetrievalConfig
    gate: Gate | None
    combiner: Combiner | None
    sentences: list[int]

    @property
    def needs(self) -> frozenset[Need]:
        """What the steps of its sentences need."""
        store, config, cache = self.store, self.config, self.config.cache
        float32, by_segment = store.index.entries.key_dtype != torch.float16, config.segments is not None
        conditions = {
            Need.WHOLE_STORE: not by_segment and not store.is_small,
            Need.EMPTY_STORE: not store.size,
            Need.STORE_ON_GPU: store.device.type != "cpu",
            Need.NO_LIBRARY: library() is None,
            Need.FAST: config.fast is not None,
            Need.GATE: self.gate is not None,
            Need.COMBINER: self.combiner is not None,
            Need.OTHER_COMBINER: self.combiner is not None and CompiledNetwork.of(self.combiner, config.k) is None,
            Need.CACHE: cache is not None,
            Need.WHOLE_STATES: cache is not None and cache.whole_states,
            Need.REDUCED_KEYS: store.projection is not None,
            Need.FLOAT32_KEYS: float32,
            Need.FLOAT32_SEGMENTS: float32 and by_segment,
            Need.NO_KERNEL: by_segment and not can_serve(store.index.entries, config.k, store.device),
            Need.MANY_NEIGHBOURS: config.k > MAX_NEIGHBOURS,
        }
        return frozenset(need for need, holds in conditions.items() if holds)
