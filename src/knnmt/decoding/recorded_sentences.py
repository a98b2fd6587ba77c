"""Batches and sentences of `knnmt.decoding.recorded_drafts`, as the host sees them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from knnmt.datastore.arrays import Array
from knnmt.decoding.arena import MAX_TURNS
from knnmt.decoding.hypothesis import Found, Hypothesis
from knnmt.retrieval.open_store import Chosen
from knnmt.retrieval.retriever import BatchRetrieval


@dataclass(slots=True, eq=False)
class Batch:
    """A batch that was asked for.

    chosen: the choice of its segments, if it was begun elsewhere
    begun: how many of its sentences are decoded already, or wait on the device
    results: of each sentence, None until it is done
    """

    sources: Sequence[Sequence[int]]
    retrieval: BatchRetrieval
    chosen: Future[Chosen] | None
    found: Found
    results: list[list[Hypothesis] | None]
    begun: int = 0

    @property
    def done(self) -> bool:
        return None not in self.results

    @property
    def ready(self) -> bool:
        """Whether its segments are chosen."""
        return self.chosen is None or (self.chosen.done() and self.chosen.exception() is None)

    def entries(self) -> Sequence[Array]:
        """The entries of each sentence's own segments. This may wait for the choice."""
        chosen = self.retrieval.choose(self.sources) if self.chosen is None else self.chosen.result()
        assert chosen[0] is not None  # noqa: S101 - all sentences are searched by segment
        return chosen[0].entries


@dataclass(slots=True, eq=False)
class Sentence:
    """A sentence while it is decoded.

    source: source positions, including padding
    tokens, drafted: as in `Hypothesis`; score: without the length
    chance, ends: the probability of the first token of the next draft, and after how many of its tokens the sentence
        would end, as far as the host knows
    usual: what `chance` was on average, of late: the device is one step ahead of the host
    """

    batch: Batch
    number: int
    usual: float
    source: int = 0
    tokens: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    score: float = 0.0
    chance: float = 0.0
    ends: int = MAX_TURNS
    stepped: bool = False
    lost: bool = False
    done: bool = False

    def end(self, length_penalty: float) -> None:
        self.done = True
        score = self.score / len(self.tokens) ** length_penalty
        found = [] if self.lost else [Hypothesis(tuple(self.tokens), score, drafted=tuple(self.drafted))]
        self.batch.results[self.number] = found
        self.batch.found(self.number, found)


@dataclass(slots=True)
class Counts:
    """What a step did for the sentences of one batch: see `Statistics`."""

    rows: int = 0
    first: int = 0
    verified: int = 0
    accepted: int = 0

    def add_to(self, retrieval: BatchRetrieval, turns: int) -> None:
        statistics = retrieval.statistics
        first = min(self.first, self.rows)
        if first:
            statistics.count(first, first, 0, first=True)
        if rows := self.rows - first:
            statistics.count(rows, rows, 0, first=False)
        if self.verified:
            statistics.count_drafts([turns - 1] * self.verified, self.accepted)
