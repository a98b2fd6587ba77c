"""The steps of a batch in PyTorch. This implementation serves every request, and tests compare the fast ones with it.

A row passes projection (PCA), gate, cache, search, combiner and interpolation. Sentences of a batch may use different
stores and settings; each group of sentences that shares both has its own cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import RetrievalConfig
from knnmt.engine.base import EncodedSources
from knnmt.retrieval.cache import RetrievalCache
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.distribution import interpolate_, token_log_probabilities
from knnmt.retrieval.needs import Group
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import UNIT_SAME_DISTANCE, Chosen, Snapshot
from knnmt.retrieval.sentence_stores import SentenceStores
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import (
    Combiner,
    Gate,
    SentenceSoFar,
    Step,
    ask_combiner,
    ask_gate,
)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The results of the rows of one step, kept as evidence.

    weights: (rows, k) log-weights; log_lambda: (rows,); hits: (rows,) bool; base: (rows, k), the model's own
    log-probabilities of the neighbours' tokens
    """

    neighbours: Neighbours
    weights: Tensor
    log_lambda: Tensor
    hits: Tensor
    base: Tensor


@dataclass(slots=True)
class _Running:
    """A group, and what its sentences share over the steps."""

    store: Snapshot
    config: RetrievalConfig
    gate: Gate | None
    combiner: Combiner
    sentences: list[int]
    cache: RetrievalCache | None = None
    stores: SentenceStores | None = None
    distances: SentenceDistances = field(init=False)

    def __post_init__(self) -> None:
        self.distances = SentenceDistances(len(self.sentences), self.store.device)

    @classmethod
    def of(cls, group: Group) -> _Running:
        store, config = group.store, group.config
        if group.combiner is not None:
            return cls(store, config, group.gate, group.combiner, group.sentences)
        same_distance = store.same_distance if config.fast is None else UNIT_SAME_DISTANCE
        return cls(store, config, group.gate, DistanceCombiner(config, same_distance), group.sentences)

    @property
    def scopes(self) -> int:
        """The number of scopes of the cache."""
        return len(self.sentences) if self.config.cache is not None and self.config.cache.scope == "sentence" else 1

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i of the batch takes over the state of sentence sentences[i]."""
        before = {number: scope for scope, number in enumerate(self.sentences)}
        self.sentences = [new for new, old in enumerate(sentences) if old in before]
        scopes = [before[sentences[new]] for new in self.sentences]
        if self.cache is not None and self.config.cache is not None and self.config.cache.scope == "sentence":
            self.cache.keep(scopes)
        self.distances.keep(scopes)
        if self.stores is not None:
            self.stores.keep(scopes)


class PlainSteps:
    """The retrieval of a batch, step by step.

    evidence: if it is a list, receives the results of every step
    """

    def __init__(
        self, groups: Sequence[Group], sentences: int, statistics: Statistics, evidence: list[Retrieved | None] | None
    ) -> None:
        self._groups = [_Running.of(group) for group in groups]
        self._sentences = sentences
        self._k = max((group.config.k for group in groups), default=1)
        self._statistics = statistics
        self._evidence = evidence
        self._first = True

    def begin(self, encoded: EncodedSources, sources: Sequence[Sequence[int]], chosen: Chosen) -> None:
        """Each sentence that is searched in its own entries gets these entries."""
        for group, entries in zip(self._groups, chosen, strict=True):
            fast, store = group.config.fast, group.store
            if entries is not None:
                group.stores = SentenceStores(store.index.entries, entries.entries, store.device)
            if fast is not None:
                with timing.stage("fast"):
                    states = [encoded.states[i, : encoded.lengths[i]] for i in group.sentences]
                    group.stores = store.sentence_stores([sources[i] for i in group.sentences], states, fast)
                self._statistics.count_fast(group.stores.bytes, store.occurrences.state_bytes)

    def mix(self, states: Tensor, scores: Tensor, history: Tensor, forced_prefix: int) -> Tensor:
        """As `retriever.RetrievalSteps` says."""
        with timing.stage("retrieval"):
            neighbours, weights, log_lambda, hits = self._retrieve(states, scores, history, forced_prefix)
        with timing.stage("interpolation"):
            if self._evidence is not None:
                base = scores.gather(1, neighbours.tokens)
                self._evidence.append(Retrieved(neighbours, weights, log_lambda, hits, base))
            log_p_knn = token_log_probabilities(neighbours.tokens, weights)
            offset = interpolate_(scores, neighbours.tokens, log_p_knn, log_lambda)
        self._first = False
        return offset

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]; sentences not named have left the batch."""
        for group in self._groups:
            group.keep(sentences)
        self._groups = [group for group in self._groups if group.sentences]
        self._sentences = len(sentences)

    def _retrieve(
        self, flat: Tensor, scores: Tensor, history: Tensor, forced_prefix: int
    ) -> tuple[Neighbours, Tensor, Tensor, Tensor]:
        """Neighbours, log-weights, log λ and cache hits of all rows; rows without a store use the model alone."""
        if len(self._groups) == 1 and len(self._groups[0].sentences) == self._sentences:
            return self._retrieve_group(self._groups[0], flat, scores, history, None, forced_prefix)
        rows = len(flat)
        neighbours = Neighbours.none(rows, self._k, flat.device)
        weights = torch.full((rows, self._k), float("-inf"), device=flat.device)
        log_lambda = torch.full((rows,), float("-inf"), device=flat.device)
        hits = torch.zeros(rows, dtype=torch.bool, device=flat.device)
        width = rows // self._sentences
        for group in self._groups:
            first = torch.tensor(group.sentences, device=flat.device) * width
            mine = (first[:, None] + torch.arange(width, device=flat.device)).flatten()
            found, weights_found, log_lambda[mine], hits[mine] = self._retrieve_group(
                group, flat, scores, history, mine, forced_prefix
            )
            neighbours.put(mine, found)
            weights[mine, : weights_found.shape[1]] = weights_found
        return neighbours, weights, log_lambda, hits

    def _retrieve_group(
        self, group: _Running, flat: Tensor, scores: Tensor, history: Tensor, mine: Tensor | None, forced_prefix: int
    ) -> tuple[Neighbours, Tensor, Tensor, Tensor]:
        states = flat if mine is None else flat[mine]
        queries = group.store.project(states)

        def step(sentence: SentenceSoFar) -> Step:
            return Step(group.store, group.config, states, queries, sentence, scores, history, mine, forced_prefix)

        wanted, gates_lambda = None, None
        if group.gate is not None:
            wanted, gates_lambda = ask_gate(group.gate, step(group.distances.so_far(len(states))))
        neighbours, hits = self._neighbours(group, states, queries, wanted)
        nearest_sq = neighbours.distances_sq[:, 0]
        weights, log_lambda = ask_combiner(group.combiner, step(group.distances.add(nearest_sq)), neighbours)
        if gates_lambda is not None:
            log_lambda = gates_lambda.masked_fill(nearest_sq.isinf(), float("-inf"))
        return neighbours, weights, log_lambda, hits

    def _neighbours(
        self, group: _Running, states: Tensor, queries: Tensor, wanted: Tensor | None
    ) -> tuple[Neighbours, Tensor]:
        """The neighbours of each row, by search or from the cache, and which rows the cache answered."""
        config, store = group.config, group.store
        rows = len(queries)
        hits = torch.zeros(rows, dtype=torch.bool, device=queries.device)
        if config.fast is not None or config.segments is not None:
            return self._in_own_store(group, queries, wanted), hits
        if wanted is None and config.cache is None:
            self._count(rows, rows, 0)
            return store.search(queries, config.k), hits
        searched = torch.ones_like(hits) if wanted is None else wanted
        scopes = group.scopes
        compared = states.float() if config.cache is not None and config.cache.whole_states else queries
        scoped = compared.view(scopes, -1, compared.shape[1])
        places = None
        if config.cache is not None:
            if group.cache is None:
                group.cache = RetrievalCache(scopes, compared.shape[1], config.k, config.cache, queries.device)
            distances, places = group.cache.nearest(scoped)
            hits = (distances.flatten() <= config.cache.threshold) & searched
            searched = searched & ~hits
            self._statistics.count_hits(distances.flatten(), hits)
        misses, found = searched.nonzero()[:, 0], hits.nonzero()[:, 0]
        self._count(rows, len(misses), len(found))
        neighbours = Neighbours.none(rows, config.k, queries.device)
        if len(misses):
            neighbours.put(misses, store.search(queries[misses], config.k))
        if group.cache is not None and config.cache is not None and places is not None:
            origins = compared
            if len(found):
                at = found // (rows // scopes), places.flatten()[found]
                neighbours.put(found, group.cache.at(*at))
                origins = compared.index_copy(0, found, group.cache.origins(*at))
                self._statistics.count_borrowed((compared - origins)[found].norm(dim=-1))
            kept = searched | hits if config.cache.keep_hits else searched
            group.cache.add(kept.view(scopes, -1), scoped, neighbours, origins.view_as(scoped))
        return neighbours, hits

    def _in_own_store(self, group: _Running, queries: Tensor, wanted: Tensor | None) -> Neighbours:
        """The neighbours of each row in the small store of its sentence."""
        assert group.stores is not None, "begin() comes before the first step"  # noqa: S101
        distances_sq, ids = group.stores.search(queries, group.config.k)
        found = group.store.neighbours(distances_sq, ids)
        self._count(len(queries), len(queries) if wanted is None else int(wanted.sum()), 0)
        if wanted is None:
            return found
        neighbours = Neighbours.none(len(queries), ids.shape[1], queries.device)
        neighbours.put(wanted.nonzero()[:, 0], found[wanted])
        return neighbours

    def _count(self, rows: int, searches: int, hits: int) -> None:
        self._statistics.count(rows, searches, hits, self._first)
