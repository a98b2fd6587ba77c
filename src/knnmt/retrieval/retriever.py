"""Retrieval for a batch being decoded: which rows search, what they find, and how it changes their distribution.

A row goes through projection (PCA), gate, cache, search, combiner and interpolation. Sentences of a batch may use
different stores and settings; each group of sentences that shares both has a cache of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import RetrievalConfig
from knnmt.engine.base import EncodedSources
from knnmt.retrieval.cache import RetrievalCache
from knnmt.retrieval.combiner import Combiner, DistanceCombiner, SentenceDistances
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.distribution import interpolate_, token_log_probabilities
from knnmt.retrieval.fast import SentenceStores
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import UNIT_SAME_DISTANCE, OpenStore, Snapshot
from knnmt.retrieval.statistics import Statistics

UNSIGNED = "unsigned"


@runtime_checkable
class Signed(Protocol):
    """A gate or a combiner that can say what it is."""

    def signature(self) -> str:
        """What a published score must say of it: two that give other results say something else.

        It is short, without spaces and "|", such as "mine/3f2a9c01" with a digest of its weights.
        """


class Gate(Protocol):
    """Looks at a step before the search.

    One that results are published of, or kept of, is `Signed`, too.
    """

    def __call__(
        self, representations: Tensor, log_probabilities: Tensor, history: Tensor, /
    ) -> tuple[Tensor, Tensor | None]:
        """(rows,) bool, which rows are searched, and their log λ (rows,), or None to leave λ to the combiner.

        The other rows keep the model's own distribution.
        representations (rows, dim), as the model gives them; log_probabilities (rows, vocabulary), the model's own;
        history (rows, generated), the target tokens so far
        """


@dataclass(frozen=True, slots=True, eq=False)
class Retrieval:
    """How sentences retrieve: a store, settings, and where wanted a gate or a combiner of one's own."""

    store: OpenStore
    config: RetrievalConfig
    gate: Gate | None = None
    combiner: Combiner | None = None

    def signature(self) -> str:
        """What a published score must say of it; of a gate or a combiner that is not `Signed`, that it is unsigned."""
        parts = [self.store.signature(), self.config.signature()]
        for name, part in (("gated", self.gate), ("combiner", self.combiner)):
            if part is not None:
                parts.append(f"{name}:{part.signature() if isinstance(part, Signed) else UNSIGNED}")
        return "|".join(parts)

    @property
    def signed(self) -> bool:
        """Whether its signature says all, so that results may be taken over that have the same."""
        return all(part is None or isinstance(part, Signed) for part in (self.gate, self.combiner))


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What the rows of one step retrieved, kept as evidence.

    weights: (rows, k) log-weights; log_lambda: (rows,); hits: (rows,) bool; base: (rows, k), the model's own
    log-probabilities of the neighbours' tokens
    """

    neighbours: Neighbours
    weights: Tensor
    log_lambda: Tensor
    hits: Tensor
    base: Tensor


@dataclass(slots=True)
class _Group:
    """Sentences that retrieve in the same way, by their numbers in the batch, and what they share over the steps.

    store: the retrieval's, as it was when the batch began
    """

    retrieval: Retrieval
    store: Snapshot
    sentences: list[int]
    cache: RetrievalCache | None = None
    stores: SentenceStores | None = None
    distances: SentenceDistances = field(init=False)
    combiner: Combiner = field(init=False)

    def __post_init__(self) -> None:
        config = self.retrieval.config
        self.distances = SentenceDistances(len(self.sentences), self.store.device)
        same_distance = self.store.same_distance if config.fast is None else UNIT_SAME_DISTANCE
        self.combiner = self.retrieval.combiner or DistanceCombiner(config, same_distance)

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i of the batch goes on as sentences[i] was."""
        before = {number: scope for scope, number in enumerate(self.sentences)}
        self.sentences = [new for new, old in enumerate(sentences) if old in before]
        scopes = [before[sentences[new]] for new in self.sentences]
        if self.cache is not None and _by_sentence(self):
            self.cache.keep(scopes)
        self.distances.keep(scopes)
        if self.stores is not None:
            self.stores.keep(scopes)


class BatchRetrieval:
    """The retrieval of one batch, step by step. A store that is refreshed meanwhile is searched as it was before.

    of_sentences: how each sentence retrieves, None for the model alone
    record: keep what every step retrieved, in `steps`
    snapshots: of the sentences' stores, which entry ids belong to
    """

    def __init__(
        self,
        of_sentences: Sequence[Retrieval | None],
        statistics: Statistics | None = None,
        record: bool = False,
    ) -> None:
        stores = {id(each.store): each.store for each in of_sentences if each is not None}
        taken = {number: store.snapshot for number, store in stores.items()}
        self.snapshots = [None if each is None else taken[id(each.store)] for each in of_sentences]
        numbers: dict[int, tuple[Retrieval, Snapshot, list[int]]] = {}
        for number, retrieval in enumerate(of_sentences):
            if retrieval is not None:
                numbers.setdefault(id(retrieval), (retrieval, taken[id(retrieval.store)], []))[2].append(number)
        self._groups = [_Group(*each) for each in numbers.values()]
        self._sentences = len(of_sentences)
        self._k = max((group.retrieval.config.k for group in self._groups), default=1)
        self.statistics = statistics if statistics is not None else Statistics()
        self.steps: list[Retrieved | None] | None = [] if record else None
        self._first_step = True
        self._told = 0  # tokens that were forced before the first that was chosen
        self._compiled = None if record else self._in_compiled_code()

    def _in_compiled_code(self) -> CompiledSteps | None:
        """The steps in compiled code, where it is there and can do what is asked for."""
        if len(self._groups) != 1 or len(self._groups[0].sentences) != self._sentences:
            return None
        retrieval = self._groups[0].retrieval
        if retrieval.gate is not None or retrieval.combiner is not None or retrieval.config.fast is not None:
            return None
        return CompiledSteps.of(self._groups[0].store, retrieval.config, self._sentences)

    @property
    def recordable(self) -> Retrieval | None:
        """How all sentences retrieve, where they do so alike, with a search at every step and nothing recorded."""
        if len(self._groups) != 1 or len(self._groups[0].sentences) != self._sentences or self.steps is not None:
            return None
        retrieval = self._groups[0].retrieval
        config = retrieval.config
        every_step = retrieval.gate is None and config.cache is None and config.fast is None
        return retrieval if every_step and retrieval.combiner is None and len(self._groups[0].store.values) else None

    def begin(self, encoded: EncodedSources, sources: Sequence[Sequence[int]]) -> None:
        """Before the first step: sentences with Fast kNN-MT get their stores. sources: token ids of the batch."""
        for group in self._groups:
            fast, store = group.retrieval.config.fast, group.store
            if fast is not None:
                with timing.stage("fast"):
                    states = [encoded.states[i, : encoded.lengths[i]] for i in group.sentences]
                    group.stores = store.sentence_stores([sources[i] for i in group.sentences], states, fast)
                self.statistics.count_fast(group.stores.bytes, store.occurrences.state_bytes)

    def skip(self) -> None:
        """A step whose tokens are forced needs no retrieval."""
        if self.steps is not None:
            self.steps.append(None)
        self._told += self._first_step

    def mix(self, representations: Tensor, log_probabilities: Tensor, history: Tensor) -> Tensor:
        """Equation 3 on a step's log-probabilities, in place; returns what to add to all of a row, (sentences, width).

        representations (sentences, width, dim); log_probabilities (sentences, width, vocabulary);
        history (sentences, width, generated), the target tokens so far, which a gate may look at
        """
        sentences, width, dim = representations.shape
        flat = representations.reshape(-1, dim)
        scores = log_probabilities.view(len(flat), -1)
        if self._compiled is not None:
            with timing.stage("retrieval"):
                offset = self._compiled.mix(flat, scores, self.statistics, self._first_step)
            self._first_step = False
            return offset.view(sentences, width)
        with timing.stage("retrieval"):
            neighbours, weights, log_lambda, hits = self._retrieve(flat, scores, history.flatten(0, 1), width)
        with timing.stage("interpolation"):
            if self.steps is not None:
                base = scores.gather(1, neighbours.tokens)
                self.steps.append(Retrieved(neighbours, weights, log_lambda, hits, base))
            log_p_knn = token_log_probabilities(neighbours.tokens, weights)
            offset = interpolate_(scores, neighbours.tokens, log_p_knn, log_lambda)
        self._first_step = False
        return offset.view(sentences, width)

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i goes on as sentences[i] was; those not named have left the batch."""
        if self._compiled is not None:
            self._compiled.keep(sentences)
        for group in self._groups:
            group.keep(sentences)
        self._groups = [group for group in self._groups if group.sentences]
        self._sentences = len(sentences)

    def base_log_probabilities(self, scores: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """The model's own log-probabilities of tokens chosen at the last step.

        scores (rows, vocabulary) after `mix`; rows and tokens (n,)
        """
        last = self.steps[-1] if self.steps else None
        chosen = scores[rows, tokens]
        if last is None:
            return chosen
        same = last.neighbours.tokens[rows] == tokens[:, None]
        return torch.where(same.any(1), last.base[rows, same.int().argmax(1)], chosen)

    def _retrieve(
        self, flat: Tensor, scores: Tensor, history: Tensor, width: int
    ) -> tuple[Neighbours, Tensor, Tensor, Tensor]:
        """Neighbours, log-weights, log λ and cache hits of all rows; those without a store keep to the model."""
        if len(self._groups) == 1 and len(self._groups[0].sentences) == self._sentences:
            return self._retrieve_group(self._groups[0], flat, scores, history, slice(None))
        rows = len(flat)
        neighbours = Neighbours.none(rows, self._k, flat.device)
        weights = torch.full((rows, self._k), float("-inf"), device=flat.device)
        log_lambda = torch.full((rows,), float("-inf"), device=flat.device)
        hits = torch.zeros(rows, dtype=torch.bool, device=flat.device)
        for group in self._groups:
            first = torch.tensor(group.sentences, device=flat.device) * width
            mine = (first[:, None] + torch.arange(width, device=flat.device)).flatten()
            found, weights_found, log_lambda[mine], hits[mine] = self._retrieve_group(
                group, flat, scores, history, mine
            )
            neighbours.put(mine, found)
            weights[mine, : weights_found.shape[1]] = weights_found
        return neighbours, weights, log_lambda, hits

    def _retrieve_group(
        self, group: _Group, flat: Tensor, scores: Tensor, history: Tensor, mine: Tensor | slice
    ) -> tuple[Neighbours, Tensor, Tensor, Tensor]:
        store, gate = group.store, group.retrieval.gate
        states = flat[mine]
        queries = store.project(states)
        wanted, gates_lambda = (
            (None, None) if gate is None else gate(states, scores[mine], self._own(history[mine], store))
        )
        neighbours, hits = self._neighbours(group, queries, wanted)
        nearest_sq = neighbours.distances_sq[:, 0]
        so_far = group.distances.add(nearest_sq)
        counts = store.counts(neighbours.ids, group.retrieval.config.use_counts)
        weights, log_lambda = group.combiner(neighbours, counts, so_far)
        if gates_lambda is not None:
            log_lambda = gates_lambda.masked_fill(nearest_sq.isinf(), float("-inf"))
        return neighbours, weights, log_lambda, hits

    def _own(self, history: Tensor, store: Snapshot) -> Tensor:
        """The history without what was forced first, if no target of the store begins so: the code of a language."""
        if not self._told or not store.store.segments:
            return history
        begins = store.store.segments[0].target_tokens(0)[: self._told].tolist()
        return history if begins == history[0, : self._told].tolist() else history[:, self._told :]

    def _neighbours(self, group: _Group, queries: Tensor, wanted: Tensor | None) -> tuple[Neighbours, Tensor]:
        """What each row finds, by search or in the cache, and which rows the cache answered."""
        config, store = group.retrieval.config, group.store
        rows = len(queries)
        hits = torch.zeros(rows, dtype=torch.bool, device=queries.device)
        if config.fast is not None:
            return self._in_own_store(group, queries, wanted), hits
        if wanted is None and config.cache is None:
            self._count(rows, rows, 0)
            return store.search(queries, config.k), hits
        searched = torch.ones_like(hits) if wanted is None else wanted
        scopes = len(group.sentences) if _by_sentence(group) else 1
        scoped = queries.view(scopes, -1, queries.shape[1])
        places = None
        if config.cache is not None:
            if group.cache is None:
                group.cache = RetrievalCache(scopes, queries.shape[1], config.k, config.cache, queries.device)
            distances, places = group.cache.nearest(scoped)
            hits = (distances.flatten() <= config.cache.threshold) & searched
            searched = searched & ~hits
            self.statistics.count_hits(distances.flatten(), hits)
        misses, found = searched.nonzero()[:, 0], hits.nonzero()[:, 0]
        self._count(rows, len(misses), len(found))
        neighbours = Neighbours.none(rows, config.k, queries.device)
        if len(misses):
            neighbours.put(misses, store.search(queries[misses], config.k))
        if group.cache is not None and config.cache is not None and places is not None:
            if len(found):
                neighbours.put(found, group.cache.at(found // (rows // scopes), places.flatten()[found]))
            kept = searched | hits if config.cache.store_hits else searched
            group.cache.add(kept.view(scopes, -1), scoped, neighbours)
        return neighbours, hits

    def _in_own_store(self, group: _Group, queries: Tensor, wanted: Tensor | None) -> Neighbours:
        """What each row finds in the small store of its sentence."""
        assert group.stores is not None, "begin() comes before the first step"  # noqa: S101
        distances_sq, ids = group.stores.search(queries, group.retrieval.config.k)
        found = group.store.neighbours(distances_sq, ids)
        self._count(len(queries), len(queries) if wanted is None else int(wanted.sum()), 0)
        if wanted is None:
            return found
        neighbours = Neighbours.none(len(queries), ids.shape[1], queries.device)
        neighbours.put(wanted.nonzero()[:, 0], found[wanted])
        return neighbours

    def _count(self, rows: int, searches: int, hits: int) -> None:
        self.statistics.count(rows, searches, hits, self._first_step)


def _by_sentence(group: _Group) -> bool:
    cache = group.retrieval.config.cache
    return cache is not None and cache.scope == "sentence"
