"""Retrieval for a batch during decoding: the request of each sentence, and the implementation that serves the batch.

    plain      PyTorch, for every request (`plain`)
    compiled   a CPU: if all sentences retrieve in the same way, in compiled code (`compiled`)
    mixtures   a CPU: each sentence's own segments, as part of compiled steps (`own_mixtures`)
    recorded   a GPU: a search at every step, as part of steps that are replayed (`recorded`)

The fast implementations find the same as the plain one. The backend of the search takes the last two, if it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from knnmt.config import RetrievalConfig
from knnmt.engine.base import EncodedSources
from knnmt.index.covering import Coverage
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.open_store import Chosen, OpenStore
from knnmt.retrieval.own_entries_on_device import can_serve
from knnmt.retrieval.own_mixtures import OwnMixtures, why_not_mixed
from knnmt.retrieval.plain import Group, PlainSteps, Retrieved
from knnmt.retrieval.recorded import RecordedRetrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import UNSIGNED, Combiner, Gate, Signed, require_callable


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

    def mix(self, states: Tensor, scores: Tensor, history: Tensor, told: int) -> Tensor:
        """Equation 3 on a step's log-probabilities, in place; returns the offset to add to each row, (rows,).

        states (rows, dim); scores (rows, vocabulary) float32; history (rows, generated), the target tokens so far, of
        which the first `told` were forced; rows sentence by sentence
        """

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]; sentences not named have left the batch."""


def steps_for(
    groups: Sequence[Group],
    sentences: int,
    statistics: Statistics,
    evidence: list[Retrieved | None] | None = None,
) -> RetrievalSteps:
    """The fastest implementation that serves the request."""
    if len(groups) == 1 and len(groups[0].sentences) == sentences and evidence is None:
        store, config, combiner = groups[0].store, groups[0].config, groups[0].combiner
        if groups[0].gate is None and config.fast is None and store.size:
            compiled = CompiledSteps.of(store, config, sentences, statistics, combiner)
            if compiled is not None:
                return compiled
    return PlainSteps(groups, sentences, statistics, evidence)


class BatchRetrieval:
    """The retrieval of one batch, step by step. If a store is refreshed meanwhile, its earlier state is searched.

    of_sentences: how each sentence retrieves, None for the model alone
    record: keep the results of every step, in `steps`
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
        self.steps: list[Retrieved | None] | None = [] if record else None
        self._chosen: Chosen | None = None
        self._way: RetrievalSteps | None = None
        self._mixed = False
        self._told = 0  # tokens that were forced before the first chosen one

    @property
    def way(self) -> RetrievalSteps:
        """The retrieval for steps that are made one by one."""
        if self._way is None:
            self._way = steps_for(self.groups, len(self.snapshots), self.statistics, self.steps)
        return self._way

    def why_not_recorded(self) -> str | None:
        """Why the search cannot be part of steps that a GPU records, or None if it can."""
        if self.steps is not None:
            return "evidence is recorded"
        if len(self.groups) != 1 or len(self.groups[0].sentences) != len(self.snapshots):
            return "sentences search in different ways"
        store, config, combiner = self.groups[0].store, self.groups[0].config, self.groups[0].combiner
        reasons = {
            "Fast kNN-MT is used": config.fast is not None,
            "a gate is used": self.groups[0].gate is not None,
            "a combiner is used": combiner is not None,
            "a cache is used": config.cache is not None,
            "the store is empty": not store.size,
            "no kernel searches the segments' keys": config.segments is not None
            and not can_serve(store.index.entries, config.k, store.device),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def recorded(self) -> RecordedRetrieval:
        """The retrieval for steps that a GPU records, if `why_not_recorded` has no reason against it."""
        return RecordedRetrieval(self.groups[0].store, self.groups[0].config)

    def why_not_compiled(self) -> str | None:
        """Why compiled code cannot search at every step of a batch without returning, or None if it can."""
        if self.steps is not None:
            return "evidence is recorded"
        return next((why for group in self.groups if (why := why_not_mixed(group)) is not None), None)

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
        self.way.begin(encoded, sources, self.choose(sources))

    @property
    def coverage(self) -> list[Coverage | None]:
        """The coverage of each source, after segments are chosen; None for a sentence not searched by segment."""
        found: list[Coverage | None] = [None] * len(self.snapshots)
        for group, chosen in zip(self.groups, self._chosen or (), strict=False):
            if chosen is not None:
                for sentence, coverage in zip(group.sentences, chosen.coverage, strict=True):
                    found[sentence] = coverage
        return found

    def mixtures(self, sources: Sequence[Sequence[int]], vocabulary: int) -> OwnMixtures:
        """The mixture of each sentence for compiled steps, if `why_not_compiled` has no reason against it."""
        return OwnMixtures(self.groups, self.choose(sources), len(self.snapshots), vocabulary, self.statistics)

    def skip(self) -> None:
        """A step whose tokens are forced needs no retrieval."""
        if self.steps is not None:
            self.steps.append(None)
        self._told += not self._mixed

    def mix(self, representations: Tensor, log_probabilities: Tensor, history: Tensor) -> Tensor:
        """Equation 3 on a step's log-probabilities, in place; returns the offset of each row, (sentences, width).

        representations (sentences, width, dim); log_probabilities (sentences, width, vocabulary);
        history (sentences, width, generated), the target tokens so far, which a gate may use
        """
        sentences, width, dim = representations.shape
        flat = representations.reshape(-1, dim)
        offset = self.way.mix(flat, log_probabilities.view(len(flat), -1), history.flatten(0, 1), self._told)
        self._mixed = True
        return offset.view(sentences, width)

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the state of sentence sentences[i]; sentences not named have left the batch."""
        self.way.keep(sentences)

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
