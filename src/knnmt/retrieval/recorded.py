"""Retrieval for sentences that all search one store at every step, without waiting for the device.

No gate and no cache decide which rows search, so shapes are the same at every step, and a step can be recorded and
replayed. Its state is at fixed addresses.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.index.base import Found
from knnmt.native.gpu import kernel
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.distribution import interpolate_, token_log_probabilities
from knnmt.retrieval.open_store import Chosen, Snapshot
from knnmt.retrieval.own_entries_on_device import OwnEntriesOnDevice, OwnKeys
from knnmt.retrieval.step import SentenceSoFar

_MAX_ROWS = 32  # of a sentence; each has a warp
_MAX_NEIGHBOURS = 2048  # of a sentence's rows, as in mix.cu
_MAX_OF_ROW = 1024  # neighbours of a row, as in best.cu


Keep = Callable[[Hashable, Callable[[], Any]], Any]
"""Returns the object that was made for a key, or makes it: `decoding.arena.Arena.kept`."""


@dataclass(frozen=True, slots=True)
class MixedInTurn:
    """The results of several consecutive steps of each sentence; (sentences, turns) each.

    offsets: to add to all scores of a row; sums, steps: `SentenceDistances` after each step
    """

    offsets: Tensor
    sums: Tensor
    steps: Tensor


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be chosen: forbidden (tokens,), and the token `end` only after at least `min_tokens` tokens."""

    forbidden: Tensor
    end: int
    min_tokens: int


class RecordedRetrieval:
    """The retrieval of a batch whose steps are recorded.

    It holds the store as it was when the batch began, because replayed steps read it.

    steps: the steps for the present number of sentences, after `begin`
    """

    def __init__(self, store: Snapshot, config: RetrievalConfig) -> None:
        self._store = store
        self._config = config
        self._own: OwnKeys | None = None
        self._spans = np.zeros((0, 2), np.int64)
        self.steps: RecordedSteps | None = None

    @property
    def by_segment(self) -> bool:
        """Whether sentences are searched in their own segments."""
        return self._config.segments is not None

    def same_as(self, other: object) -> bool:
        """Whether both search the same store in the same way."""
        if not isinstance(other, RecordedRetrieval):
            return False
        return self._store is other._store and self._config == other._config

    def begin_with_blanks(self, sentences: int, keep: Keep) -> None:
        """Begin with so many blanks. Sentences come later: see `stage`."""
        dim = self._store.index.entries.dim
        self._own = keep(("own", dim), lambda: OwnKeys(dim, self._store.device))
        self._spans = np.zeros((sentences, 2), np.int64)
        self.steps = self._of_size(sentences, keep)
        self.steps.begin(self._spans)

    def stage(self, entries: Sequence[Array], keep: Keep) -> Array:
        """Bring the entries of sentences that wait to the device; returns their spans.

        Nobody may wait already. `RecordedSteps.admit` admits them on the device, `admit` here.
        """
        own = self._own
        assert own is not None  # noqa: S101 - it has begun
        with timing.stage("segments"):
            number = own.number
            spans = own.put(self._store.index, entries, self._spans)
            if own.number != number:
                everyone = torch.arange(len(self._spans), device=self._store.device)
                self._go_on(everyone, len(self._spans), keep)
        return spans

    def admit(self, places: Sequence[int], spans: Array) -> None:
        """Sentences with these spans have taken the places of others, whose entries are no longer needed."""
        self._spans[places] = spans

    def begin(self, sentences: int, chosen: Chosen, keep: Keep) -> None:
        """Begin with this many sentences, including blanks, that have retrieved nothing yet."""
        store, spans = self._store, None
        if chosen[0] is not None:
            dim = store.index.entries.dim
            with timing.stage("segments"):
                self._own = own = keep(("own", dim), lambda: OwnKeys(dim, store.device))
                spans = own.put(store.index, chosen[0].entries)
        self.steps = self._of_size(sentences, keep)
        self.steps.begin(spans)

    def keep(self, rows: Tensor, sentences: int, keep: Keep) -> None:
        """Sentence i takes over the state of sentence rows[i]; from `sentences` on all are blanks. No more may come."""
        self._go_on(rows, sentences, keep)

    def _go_on(self, rows: Tensor, sentences: int, keep: Keep) -> None:
        before, self.steps = self.steps, self._of_size(len(rows), keep)
        if before is not None:
            self.steps.go_on(before, rows, sentences)

    def _of_size(self, sentences: int, keep: Keep) -> RecordedSteps:
        store, config, own = self._store, self._config, self._own
        key = (store.number, config, sentences, None if own is None else own.number)
        made: RecordedSteps = keep(key, lambda: RecordedSteps(store, config, sentences, own))
        return made


class RecordedSteps:
    """The retrieval of a number of sentences. It does not keep what it searches: `RecordedRetrieval` does."""

    def __init__(self, store: Snapshot, config: RetrievalConfig, sentences: int, own: OwnKeys | None = None) -> None:
        self._snapshot = weakref.ref(store)
        self._config = config
        self._combiner = DistanceCombiner(config, store.same_distance)
        self._distances = SentenceDistances(sentences, store.device)
        self._own = None if own is None else OwnEntriesOnDevice(own, store.index.entries.dim, sentences)
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

    def admit(self, places: Tensor, spans: Tensor) -> None:
        """Other sentences take these places. spans: of their own entries; this can be recorded"""
        assert self._own is not None  # noqa: S101 - sentences come one by one only if each has its own entries
        self._own.admit(places, spans)
        self._distances.restart_at(places)

    def go_on(self, earlier: RecordedSteps, rows: Tensor, sentences: int) -> None:
        """Sentence i takes over the state of sentence rows[i] of `earlier`; from `sentences` on all are blanks."""
        self._distances.take(earlier._distances, rows)
        if self._own is not None and earlier._own is not None:
            self._own.go_on(earlier._own, rows, sentences)

    def look(self, representations: Tensor) -> Found:
        """The nearest entries of the rows, in a store that has entries; representations (sentences, width, dim)."""
        with timing.stage("retrieval"):
            store = self._store
            queries = store.project(representations.flatten(0, 1))
            k = min(self._config.k, store.size)
            return store.nearest(queries, k) if self._own is None else self._own.search(queries, k)

    def mix(self, found: Found, log_probabilities: Tensor, scores: Tensor) -> Tensor:
        """Equation 3 in place; returns the scores, (sentences, width), plus the offset of each row.

        log_probabilities (sentences, width, vocabulary)
        """
        with timing.stage("interpolation"):
            if self._in_one_kernel(found, scores.shape[1]):
                sums, steps = self._distances.sums, self._distances.steps
                return scores + self._mix_in_one(found, log_probabilities, 0, sums, steps)
            so_far = self._distances.add(found[0][:, 0])
            return scores + self._mix_plainly(found, log_probabilities, so_far).view(scores.shape)

    def mix_in_turn(self, found: Found, log_probabilities: Tensor) -> MixedInTurn:
        """The same if a sentence's rows are consecutive steps; `take` says how many of them count.

        log_probabilities (sentences, turns, vocabulary)
        """
        with timing.stage("interpolation"):
            sentences, turns, _ = log_probabilities.shape
            if self._in_one_kernel(found, turns):
                sums, steps = torch.empty((2, sentences, turns), device=log_probabilities.device)
                return MixedInTurn(self._mix_in_one(found, log_probabilities, 1, sums, steps), sums, steps)
            sums, steps = self._distances.in_turn(found[0][:, 0])
            so_far = SentenceSoFar((sums / steps.clamp(min=1)).flatten(), steps.clamp(min=1).flatten())
            offsets = self._mix_plainly(found, log_probabilities, so_far)
            return MixedInTurn(offsets.view(sentences, turns), sums, steps)

    def chooses_in_one(self, dtype: torch.dtype) -> bool:
        """Whether `best_in_turn` works with scores of this type."""
        return self._config.k <= _MAX_OF_ROW and self._best(dtype) is not None

    def _best(self, dtype: torch.dtype) -> Callable[..., Any] | None:
        if dtype not in (torch.float16, torch.float32):
            return None
        return kernel("best", self._mixture.device, HALF=int(dtype == torch.float16))

    def best_in_turn(
        self, found: Found, scores: Tensor, rules: Rules, generated: Tensor
    ) -> tuple[Tensor, Tensor, MixedInTurn]:
        """The best token of each row after `mix_in_turn`, and its log-probability, (sentences, turns) each.

        scores (sentences, turns, vocabulary): before the softmax
        generated (sentences,): number of earlier tokens
        """
        with timing.stage("interpolation"):
            sentences, turns, vocabulary = scores.shape
            sums, steps, offsets, best = torch.empty((4, sentences, turns), device=scores.device)
            tokens = torch.empty((sentences, turns), dtype=torch.long, device=scores.device)
            compiled = self._best(scores.dtype)
            assert compiled is not None  # noqa: S101 - `chooses_in_one` has checked this
            compiled(
                grid=(sentences * turns, 1, 1),
                block=(256, 1, 1),
                args=[
                    scores.contiguous(),
                    vocabulary,
                    rules.forbidden,
                    len(rules.forbidden),
                    rules.end,
                    rules.min_tokens,
                    generated,
                    *self.told_to_kernel(found, turns),
                    sums,
                    steps,
                    offsets,
                    best,
                    tokens,
                ],
            )
            return best, tokens, MixedInTurn(offsets, sums, steps)

    def take(self, mixed: MixedInTurn, last: Tensor) -> None:
        """The sentences continue after these turns, (sentences,)."""
        for mine, after in ((self._distances.sums, mixed.sums), (self._distances.steps, mixed.steps)):
            mine.copy_(after.gather(1, last[:, None])[:, 0])

    @property
    def so_far(self) -> SentenceDistances:
        """The distances that `take` writes."""
        return self._distances

    @property
    def values(self) -> Tensor:
        """(entries,) int32, the entries' tokens."""
        return self._store.values

    def _mix_plainly(self, found: Found, log_probabilities: Tensor, so_far: SentenceSoFar) -> Tensor:
        """Equation 3 in place by PyTorch; returns the offset of each row, (rows,)."""
        neighbours = self._store.neighbours(*found)
        counts = self._store.counts(neighbours.ids, self._config.use_counts)
        weights, log_lambda = self._combiner.weigh(neighbours, counts, so_far)
        log_p_knn = token_log_probabilities(neighbours.tokens, weights)
        return interpolate_(log_probabilities.flatten(0, 1), neighbours.tokens, log_p_knn, log_lambda)

    def _in_one_kernel(self, found: Found, width: int) -> bool:
        return self._kernel is not None and width <= _MAX_ROWS and width * found[1].shape[1] <= _MAX_NEIGHBOURS

    def _mix_in_one(self, found: Found, log_probabilities: Tensor, in_turn: int, sums: Tensor, steps: Tensor) -> Tensor:
        """The same in compiled code; returns the offsets, (sentences, width). sums, steps: get values after the rows"""
        assert self._kernel is not None  # noqa: S101 - `_in_one_kernel` has checked this
        sentences, width, vocabulary = log_probabilities.shape
        offsets = torch.empty((sentences, width), device=log_probabilities.device)
        told = self.told_to_kernel(found, width)
        self._kernel(
            grid=(sentences, 1, 1),
            block=(32 * width, 1, 1),
            args=[log_probabilities, vocabulary, in_turn, *told, sums, steps, offsets],
        )
        return offsets

    @property
    def k(self) -> int:
        """The most neighbours of a row."""
        return self._config.k

    def told_to_kernel(self, found: Found, width: int) -> list[Any]:
        """What mix.cu, best.cu and follow.cu must know about the store, the neighbours and the sentences so far."""
        store, (distances_sq, ids) = self._store, (each.contiguous() for each in found)
        counts = store.all_counts(self._config.use_counts)
        neighbours = [distances_sq, ids, store.size, store.values]
        of_counts = [self._mixture if counts is None else counts, int(counts is not None)]
        so_far = [self._distances.sums, self._distances.steps]
        return [self._mixture, width, ids.shape[1], *neighbours, *of_counts, *so_far]
