"""Batches and sentences of `knnmt.decoding.recorded_drafts`, as the host sees them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from knnmt.decoding.following_batches import FollowingBatch
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.retrieval.open_store import Chosen, ChosenEntries


@dataclass(slots=True, eq=False)
class Batch(FollowingBatch):
    """A batch that was asked for. chosen: the choice of its segments, if it was begun elsewhere"""

    chosen: Future[Chosen] | None

    @property
    def ready(self) -> bool:
        """Whether its segments are chosen."""
        return self.chosen is None or (self.chosen.done() and self.chosen.exception() is None)

    def chosen_entries(self) -> ChosenEntries:
        """The entries of each sentence's own segments. This may wait for the choice."""
        chosen = self.retrieval.choose(self.sources) if self.chosen is None else self.chosen.result()
        assert chosen[0] is not None  # noqa: S101 - all sentences are searched by segment
        return chosen[0]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a batch. draft: the tokens that its first step computes after the first, if any"""

    batch: Batch
    number: int
    draft: Sequence[int] = ()

    def end(self, found: list[Hypothesis]) -> None:
        """It is done, with one translation or none."""
        self.batch.results[self.number] = found
        self.batch.found(self.number, found)
