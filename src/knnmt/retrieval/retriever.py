"""Retrieval for a batch during decoding: the request of each sentence, and the implementation that serves the batch.

    plain       PyTorch, step by step, for every request (`plain`)
    compiled    a CPU: step by step in compiled code, if all sentences have the same store and settings (`compiled`)
    mixtures    a CPU: each sentence's own segments or a small store, as part of compiled steps (`sentence_mixtures`)
    graphs      a GPU: a search at every step, as part of steps that are captured (`graphs`)

All find the same as the plain one. The first two serve the reference backend of the search, the others the backends of
the same kind; `needs` says which can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from knnmt.config import RetrievalConfig
from knnmt.engine.base import EncodedSources
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.graphs import GraphRetrieval
from knnmt.retrieval.needs import Group, Need
from knnmt.retrieval.open_store import Chosen, OpenStore
from knnmt.retrieval.plain import PlainSteps, Retrieved
from knnmt.retrieval.sentence_mixtures import SentenceMixtures
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import UNSIGNED, Combiner, Gate, Signed, require_callable
from knnmt.segments.covering import Coverage


@dataclass(frozen=True, slots=True, eq=False)
class Retrieval:
    """How sentences retrieve: a store, settings, and optionally your own gate or combiner."""

    store: OpenStore
    config: RetrievalConfig
    gate: Gate | None = None
    combiner: Combiner | None = None

    def __post_init__(self) -> None:
        if self.gate is not None:
            require_callable(self.gate, "gate", "step")
        if self.combiner is not None:
            require_callable(self.combiner, "combiner", "step", "neighbours")

    def signature(self) -> str:
        """Identifies it in published scores. A gate or combiner that is not `Signed` appears as unsigned."""
        store = self.store.signature()
        if self.config.segments is not None:  # their entries are searched exactly, whatever index the store has
            store = store.rpartition("|index:")[0]
        parts = [store, self.config.signature()]
        for name, part in (("gated", self.gate), ("combiner", self.combiner)):
            if part is not None:
                parts.append(f"{name}:{part.signature() if isinstance(part, Signed) else UNSIGNED}")
        return "|".join(parts)

    @property
    def signed(self) -> bool:
        """Whether its signature is complete, so that results with the same signature may be reused."""
        return all(part is None or isinstance(part, Signed) for part in (self.gate, self.combiner))


class RetrievalSteps(Protocol):
    """The retrieval of a batch, step by step."""

    def begin(self, encoded: EncodedSources, sources: Sequence[Sequence[int]], chosen: Chosen) -> None:
        """Call it before the first step. sources: token ids of the batch."""

    def mix(self, states: Tensor, scores: Tensor, history: Tensor, forced_prefix: int) -> Tensor:
        """Equation 3 on a step's log-probabilities, in place; returns the offset to add to each row, (rows,).

        states (rows, dim); scores (rows, vocabulary) float32; history (rows, generated), the target tokens so far, of
        which the first `forced_prefix` were forced; rows sentence by sentence
        """

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]; sentences not named have left the batch."""


class BatchRetrieval:
    """The retrieval of one batch, step by step. If a store is refreshed meanwhile, its earlier state is searched.

    of_sentences: how each sentence retrieves, None for the model alone
    record: keep the results of every step, in `evidence`
    snapshots: of the sentences' stores, to which entry ids belong
    """

    def __init__(
        self,
        of_sentences: Sequence[Retrieval | None],
        statistics: Statistics | None = None,
        record: bool = False,
    ) -> None:
        self.of_sentences = of_sentences
        stores = {id(each.store): each.store for each in of_sentences if each is not None}
        taken = {number: store.snapshot for number, store in stores.items()}
        self.snapshots = [None if each is None else taken[id(each.store)] for each in of_sentences]
        numbers: dict[int, Group] = {}
        for number, each in enumerate(of_sentences):
            if each is not None:
                group = Group(taken[id(each.store)], each.config, each.gate, each.combiner, [])
                numbers.setdefault(id(each), group).sentences.append(number)
        self.groups = list(numbers.values())
        self.statistics = statistics if statistics is not None else Statistics()
        self.evidence: list[Retrieved | None] | None = [] if record else None
        self._chosen: Chosen | None = None
        self._mixed = False
        self._forced_prefix = 0  # tokens that were forced before the first chosen one

    @property
    def needs(self) -> frozenset[Need]:
        """What the steps of the batch need."""
        cached = any(group.config.cache is not None for group in self.groups)
        several = len(self.groups) != 1 or len(self.groups[0].sentences) != len(self.snapshots)
        conditions = {
            Need.EVIDENCE: self.evidence is not None,
            Need.SEVERAL_SETTINGS: several,
            Need.WHOLE_STATES: cached and self.statistics.borrowed_distances is not None,
        }
        return frozenset(need for need, holds in conditions.items() if holds).union(
            *(group.needs for group in self.groups)
        )

    @cached_property
    def stepwise(self) -> RetrievalSteps:
        """The retrieval for steps that are made one by one: compiled if possible."""
        if self.needs & CompiledSteps.LACKS:
            return PlainSteps(self.groups, len(self.snapshots), self.statistics, self.evidence)
        return CompiledSteps(self.groups[0], len(self.snapshots), self.statistics)

    def for_graphs(self) -> GraphRetrieval:
        """The retrieval as part of steps that are captured, if they lack nothing that it needs."""
        return GraphRetrieval(self.groups[0].store, self.groups[0].config)

    @property
    def chooses(self) -> bool:
        """Whether sentences are searched by segment."""
        return any(group.config.segments is not None for group in self.groups)

    def choose(self, sources: Sequence[Sequence[int]]) -> Chosen:
        """The entries of the sentences' own segments, chosen at the first call. sources: token ids of the batch."""
        if self._chosen is None:
            self._chosen = [
                None
                if group.config.segments is None
                else group.store.choose_segments([sources[i] for i in group.sentences], group.config.segments)
                for group in self.groups
            ]
        return self._chosen

    def begin(self, encoded: EncodedSources, sources: Sequence[Sequence[int]]) -> None:
        """Call it before the first step. sources: token ids of the batch."""
        self.stepwise.begin(encoded, sources, self.choose(sources))

    @property
    def coverage(self) -> list[Coverage | None]:
        """The coverage of each source, after segments are chosen; None for a sentence not searched by segment."""
        found: list[Coverage | None] = [None] * len(self.snapshots)
        for group, chosen in zip(self.groups, self._chosen or (), strict=False):
            if chosen is not None:
                for sentence, coverage in zip(group.sentences, chosen.coverage, strict=True):
                    found[sentence] = coverage
        return found

    def mixtures(self, sources: Sequence[Sequence[int]], vocabulary: int) -> SentenceMixtures:
        """The mixture of each sentence as part of compiled steps, if they lack nothing that it needs."""
        return SentenceMixtures(self.groups, self.choose(sources), len(self.snapshots), vocabulary, self.statistics)

    def skip(self) -> None:
        """A step whose tokens are forced needs no retrieval."""
        if self.evidence is not None:
            self.evidence.append(None)
        self._forced_prefix += not self._mixed

    def mix(self, representations: Tensor, log_probabilities: Tensor, history: Tensor) -> Tensor:
        """Equation 3 on a step's log-probabilities, in place; returns the offset of each row, (sentences, width).

        representations (sentences, width, dim); log_probabilities (sentences, width, vocabulary);
        history (sentences, width, generated), the target tokens so far, which a gate may use
        """
        sentences, width, dim = representations.shape
        flat = representations.reshape(-1, dim)
        offset = self.stepwise.mix(
            flat, log_probabilities.view(len(flat), -1), history.flatten(0, 1), self._forced_prefix
        )
        self._mixed = True
        return offset.view(sentences, width)

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]; sentences not named have left the batch."""
        self.stepwise.keep(sentences)

    def base_log_probabilities(self, scores: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """The model's own log-probabilities of tokens chosen at the last step.

        scores (rows, vocabulary) after `mix`; rows and tokens (n,)
        """
        last = self.evidence[-1] if self.evidence else None
        chosen = scores[rows, tokens]
        if last is None:
            return chosen
        same = last.neighbours.tokens[rows] == tokens[:, None]
        return torch.where(same.any(1), last.base[rows, same.int().argmax(1)], chosen)
