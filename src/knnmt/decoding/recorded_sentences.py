"""Batches and sentences of `knnmt.decoding.recorded_drafts`, as the host sees them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from knnmt.datastore.arrays import Array
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


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a batch."""

    batch: Batch
    number: int

    def end(self, found: list[Hypothesis]) -> None:
        """It is done, with one translation or none."""
        self.batch.results[self.number] = found
        self.batch.found(self.number, found)
