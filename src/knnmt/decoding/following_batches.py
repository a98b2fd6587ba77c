"""Batches that follow one another with drafts: sentences of the next one take the places of those that are done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from knnmt.decoding.hypothesis import Found, Hypothesis
from knnmt.retrieval.retriever import BatchRetrieval


@dataclass(slots=True, eq=False)
class FollowingBatch:
    """A batch that was asked for.

    found: see `search.search`
    begun: how many of its sentences are decoded already, or wait for a place
    results: of each sentence, None until it is done
    """

    sources: Sequence[Sequence[int]]
    retrieval: BatchRetrieval
    found: Found
    begun: int = field(default=0, init=False)
    results: list[list[Hypothesis] | None] = field(init=False)

    def __post_init__(self) -> None:
        self.results = [None] * len(self.sources)

    @property
    def done(self) -> bool:
        return None not in self.results


_Kind = TypeVar("_Kind", bound=FollowingBatch)


class FollowingBatches(ABC, Generic[_Kind]):
    """Decodes batches one after the other."""

    def __init__(self) -> None:
        self._open: deque[_Kind] = deque()  # those whose results are not returned yet
        self._queue: deque[_Kind] = deque()  # those that have sentences to begin

    def advance(self) -> list[list[list[Hypothesis]]]:
        """Decode until the last batch is next; returns the batches that are done, in order."""
        return self._returned(lambda: len(self._queue) <= 1)

    def finish(self) -> Iterator[list[list[Hypothesis]]]:
        """Decode the rest; yields one batch after the other."""
        while self._open:
            yield from self._returned(lambda: self._open[0].done)

    def _append(self, batch: _Kind) -> None:
        self._open.append(batch)
        self._queue.append(batch)

    def _returned(self, enough: Callable[[], bool]) -> list[list[list[Hypothesis]]]:
        self._decode(enough)
        done = []
        while self._open and self._open[0].done:
            done.append([each or [] for each in self._open.popleft().results])
        return done

    @abstractmethod
    def _decode(self, enough: Callable[[], bool]) -> None:
        """Decode until it is enough, or until all sentences are done and the next batch may fail."""
