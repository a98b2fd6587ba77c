"""Beam search with the results of `transformers`' own: same candidates, same length penalty, same stopping.

There is one loop, `decode`, and three backends that make its steps:

    reference   PyTorch: every engine, device, retrieval and constraint (`reference`)
    compiled    a CPU: steps in compiled code, with the model alone, segments of each sentence or a small store, and
                with required content (`compiled`)
    graphs      a GPU: steps of fixed shape, captured as CUDA graphs (`graphs`)

`backend_for` chooses. Greedy search is a beam of 1 that stops at the first hypothesis that ends. A sentence is done
when `beam` hypotheses are finished and no running one can still beat the worst of them, or when no continuation is
possible. A sentence that is impossible from the start has no hypothesis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from knnmt.config import DecodingConfig
from knnmt.decoding.backend import Backend
from knnmt.decoding.compiled import CompiledBackend
from knnmt.decoding.graphs import GraphBackend
from knnmt.decoding.hypothesis import Hypothesis, OnPartial, OnSentence, OnStarted, Results
from knnmt.decoding.reference import ReferenceBackend
from knnmt.decoding.requirements import ConstrainedSentence, Requirements
from knnmt.engine.base import Engine
from knnmt.engine.fixed_state import GraphEngine
from knnmt.engine.transformer import TransformerEngine
from knnmt.progress import ignore
from knnmt.retrieval.needs import Need
from knnmt.retrieval.retriever import BatchRetrieval

MakeBackend = Callable[..., Backend]


class Batch(NamedTuple):
    """Sentences that are searched together.

    on_sentence: is called for each sentence when it is done
    on_partial: is called with the progress of the others after every step
    """

    sources: Sequence[Sequence[int]]
    retrieval: BatchRetrieval | None = None
    on_sentence: OnSentence = ignore
    on_partial: OnPartial | None = None


class Choice(NamedTuple):
    """The backend for a batch, and why each faster one does not serve it."""

    make: MakeBackend
    why: tuple[str, ...]


def needs(
    engine: Engine[Any], config: DecodingConfig, retrieval: BatchRetrieval | None, constrained: bool = False
) -> frozenset[Need]:
    """What the steps of a batch need of a backend. constrained: whether its translations must have required content"""
    compiled = isinstance(engine, TransformerEngine) and engine.compiled is not None
    conditions = {
        Need.CPU: engine.device.type != "cuda",
        Need.ANY_SHAPE: not isinstance(engine, GraphEngine),
        Need.PYTORCH: not compiled,
        Need.HISTORY: bool(config.suppressed_sequences),
        Need.REQUIRED_CONTENT: constrained,
    }
    of_search = frozenset(need for need, holds in conditions.items() if holds)
    return of_search if retrieval is None else of_search | retrieval.needs


def backend_for(
    engine: Engine[Any], config: DecodingConfig, retrieval: BatchRetrieval | None, constrained: bool = False
) -> Choice:
    """The fastest backend that can make the steps. constrained: whether translations must have required content"""
    wanted = needs(engine, config, retrieval, constrained)
    why: list[str] = []
    for backend in (GraphBackend, CompiledBackend):
        lacking = wanted & backend.LACKS
        if not lacking:
            return Choice(backend, tuple(why))
        why.append("; ".join(need.value for need in Need if need in lacking))
    return Choice(ReferenceBackend, tuple(why))


def search(
    engine: Engine[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
    on_sentence: OnSentence = ignore,
    on_partial: OnPartial | None = None,
    on_started: OnStarted = ignore,
    make: MakeBackend | None = None,
    required: Sequence[Requirements] = (),
) -> list[list[Hypothesis]]:
    """The `config.n_best` best hypotheses for each source, best first; there may be none.

    on_sentence: is called for each sentence when it is done
    on_partial: is called with the progress of the others after every step
    on_started: is called once if steps are captured on a GPU, when it has work to do
    make: makes the backend; that of `backend_for` without it
    required: what the hypotheses of each source must contain
    """
    make = make or backend_for(engine, config, retrieval, bool(required)).make
    make = partial(GraphBackend, on_started=on_started) if make is GraphBackend else make
    constrained = [ConstrainedSentence.of(*each, config) for each in zip(sources, required, strict=bool(required))]
    if constrained:  # no hypothesis is needed beyond those that are returned
        results = Results([each.config for each in constrained], config.n_best)
        config = replace(config, max_tokens=max(each.config.max_tokens for each in constrained))
        make = partial(make, constrained=constrained)
    else:
        config = _stopping(config)
        results = Results([config] * len(sources))
    with torch.inference_mode():
        backend = make(engine, sources, config, retrieval)
        for done in decode(backend, results, one_step=on_partial is not None):
            for number in done:
                on_sentence(number, results.best(number))
            if on_partial is not None and len(backend.sentences):
                on_partial(backend.leading)
    return [results.best(number) for number in range(len(sources))]


def decode(backend: Backend, results: Results, one_step: bool = False) -> Iterator[list[int]]:
    """Make steps until all sentences are done. Each call of the backend yields the numbers of those that it finished.

    one_step: a call makes one step, because somebody looks at each of them
    """
    with backend.context:
        while len(backend.sentences):
            yield _advance(backend, results, one_step)


@torch.inference_mode()
def _advance(backend: Backend, results: Results, one_step: bool) -> list[int]:
    for number, hypothesis in backend.advance(results.least[backend.sentences], one_step):
        results.add(number, hypothesis)
    closed = results.closed(backend.sentences, backend.leaders, backend.lengths)
    done: list[int] = backend.sentences[closed].tolist()
    if done:
        backend.keep(np.flatnonzero(~closed).tolist())
    return done


def _stopping(config: DecodingConfig) -> DecodingConfig:
    """Greedy search stops at the first hypothesis that ends."""
    return replace(config, early_stopping=True) if config.beam == 1 else config


# Many batches ---------------------------------------------------------------------------------------------------------


def search_each(
    engine: Engine[Any], batches: Iterable[Batch], config: DecodingConfig
) -> Iterator[list[list[Hypothesis]]]:
    """The hypotheses of one batch after another, as `search` finds them.

    In compiled code, a sentence that is done gives its slot to one of the next batch. While a GPU decodes a batch, the
    segments of the next are chosen.
    """
    with ThreadPoolExecutor(1, "knnmt-choose") as beside:
        upcoming = _Upcoming(batches, beside)
        while upcoming.next is not None:
            if _is_compiled(engine, config, upcoming.next):
                yield from _in_flight(engine, upcoming, config)
            else:
                sources, retrieval, on_sentence, on_partial = upcoming.take()
                yield search(engine, sources, config, retrieval, on_sentence, on_partial, upcoming.choose)


class _Upcoming:
    """Batches, of which the next can be seen before it is taken.

    next: None if there is no other
    beside: the thread that chooses segments of the next one
    """

    def __init__(self, batches: Iterable[Batch], beside: ThreadPoolExecutor) -> None:
        self._batches, self._beside = iter(batches), beside
        self._choice: Future[object] | None = None
        self.next = next(self._batches, None)

    def take(self) -> Batch:
        """The next batch, which there must be."""
        assert self.next is not None, "there is no other batch"  # noqa: S101
        if self._choice is not None:
            self._choice.result()
        taken, self.next, self._choice = self.next, next(self._batches, None), None
        return taken

    def choose(self) -> None:
        """Begin to choose the segments of the next batch in another thread."""
        retrieval = None if self.next is None else self.next.retrieval
        if self.next is not None and retrieval is not None and retrieval.chooses:
            self._choice = self._beside.submit(retrieval.choose, self.next.sources)


def _is_compiled(engine: Engine[Any], config: DecodingConfig, batch: Batch) -> bool:
    """Whether the batch can share slots with others; not if somebody looks at each of its steps."""
    return batch.on_partial is None and backend_for(engine, config, batch.retrieval).make is CompiledBackend


def _in_flight(engine: Engine[Any], upcoming: _Upcoming, config: DecodingConfig) -> Iterator[list[list[Hypothesis]]]:
    """Decode the next batch in compiled code, and in its slots the batches after it that are no larger."""
    first = upcoming.take()
    size, config = len(first.sources), _stopping(config)
    with torch.inference_mode():
        backend = CompiledBackend(engine, first.sources, config, first.retrieval)
    results, batches = Results([config] * size), deque([range(size)])
    places = [(first, place) for place in range(size)]  # of each number, its batch and its place there
    running = set(batches[0])
    for done in decode(backend, results):
        for number in done:
            batch, place = places[number]
            batch.on_sentence(place, results.best(number))
        running.difference_update(done)
        while batches and running.isdisjoint(batches[0]):
            yield [results.best(number) for number in batches.popleft()]
        if len(backend.sentences) < size and _fits(engine, upcoming, config, size):
            batch = upcoming.take()
            with torch.inference_mode():
                batches.append(backend.add(batch.sources, batch.retrieval))
            results.extend([config] * len(batch.sources))
            places += [(batch, place) for place in range(len(batch.sources))]
            running.update(batches[-1])


def _fits(engine: Engine[Any], upcoming: _Upcoming, config: DecodingConfig, size: int) -> bool:
    """Whether the next batch is compiled, too, and at most so large."""
    batch = upcoming.next
    return batch is not None and len(batch.sources) <= size and _is_compiled(engine, config, batch)
