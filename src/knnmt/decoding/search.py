"""Beam search with the results of `transformers`' own: same candidates, same length penalty, same stopping.

There is one loop, `decode`, and three backends that make its steps:

    reference   PyTorch: every engine, device, retrieval and constraint (`reference`)
    compiled    a CPU: steps in compiled code, with the model alone, segments of each sentence or a small store
                (`compiled`)
    graphs      a GPU: steps of fixed shape, recorded as CUDA graphs (`graphs`)

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
from knnmt.decoding.compiled import CompiledBackend, why_not_compiled
from knnmt.decoding.graphs import GraphBackend, why_not_recorded
from knnmt.decoding.hypothesis import Hypothesis, OnPartial, OnSentence, OnStarted, Results
from knnmt.decoding.reference import ReferenceBackend
from knnmt.engine.base import Engine
from knnmt.index.progress import ignore
from knnmt.retrieval.retriever import BatchRetrieval

MakeBackend = Callable[[Engine[Any], Sequence[Sequence[int]], DecodingConfig, BatchRetrieval | None], Backend]


class Choice(NamedTuple):
    """The backend for a batch, and why the faster ones do not serve it."""

    make: MakeBackend
    why: tuple[str, ...]


def backend_for(engine: Engine[Any], config: DecodingConfig, retrieval: BatchRetrieval | None) -> Choice:
    """The fastest backend that can make the steps."""
    why: tuple[str, ...] = ()
    for make, reason in (
        (GraphBackend, why_not_recorded(engine, config, retrieval)),
        (CompiledBackend, why_not_compiled(engine, retrieval)),
    ):
        if reason is None:
            return Choice(make, why)
        why += (reason,)
    return Choice(ReferenceBackend, why)


def search(
    engine: Engine[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
    on_sentence: OnSentence = ignore,
    on_partial: OnPartial | None = None,
    on_started: OnStarted = ignore,
    make: MakeBackend | None = None,
) -> list[list[Hypothesis]]:
    """The `config.n_best` best hypotheses for each source, best first.

    on_sentence: is called for each sentence when it is done
    on_partial: is called with the progress of the others after every step
    on_started: is called once if steps are recorded on a GPU, when it has work to do
    make: makes the backend; that of `backend_for` without it
    """
    make = make or backend_for(engine, config, retrieval).make
    make = partial(GraphBackend, on_started=on_started) if make is GraphBackend else make
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
            for number, hypothesis in backend.advance(results.least[backend.sentences], one_step):
                results.add(number, hypothesis)
            closed = results.closed(backend.sentences, backend.leaders, backend.lengths)
            done: list[int] = backend.sentences[closed].tolist()
            if done:
                backend.keep(np.flatnonzero(~closed).tolist())
            yield done


def _stopping(config: DecodingConfig) -> DecodingConfig:
    """Greedy search stops at the first hypothesis that ends."""
    return replace(config, early_stopping=True) if config.beam == 1 else config


def search_each(
    engine: Engine[Any],
    batches: Iterable[tuple[Sequence[Sequence[int]], BatchRetrieval | None]],
    config: DecodingConfig,
) -> Iterator[list[list[Hypothesis]]]:
    """The hypotheses of one batch after another, as `search` finds them.

    In compiled code, a sentence that is done gives its place to one of the next batch. While a GPU decodes a batch, the
    segments of the next are chosen.
    """
    if engine.device.type == "cuda":
        yield from _choosing_ahead(engine, batches, config)
        return
    pool: _Pool | None = None
    for sources, retrieval in batches:
        compiled = backend_for(engine, config, retrieval).make is CompiledBackend
        if pool is not None and not (compiled and len(sources) <= pool.size):
            yield from pool.decode()
            pool = None
        if not compiled:
            yield search(engine, sources, config, retrieval)
        elif pool is None:
            pool = _Pool(engine, sources, config, retrieval)
        else:
            yield from pool.decode(until_a_place_is_free=True)
            pool.add(sources, retrieval)
    if pool is not None:
        yield from pool.decode()


class _Pool:
    """Batches that one compiled backend decodes, none larger than the first.

    size: how many sentences are decoded at a time
    """

    def __init__(
        self,
        engine: Engine[Any],
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval | None,
    ) -> None:
        self.size, self._config = len(sources), _stopping(config)
        with torch.inference_mode():
            self._backend = CompiledBackend(engine, sources, self._config, retrieval)
        self._results = Results([self._config] * len(sources))
        self._open = set(range(len(sources)))
        self._batches = deque([range(len(sources))])

    def add(self, sources: Sequence[Sequence[int]], retrieval: BatchRetrieval | None) -> None:
        """Begin a batch."""
        with torch.inference_mode():
            numbers = self._backend.add(sources, retrieval)
        self._results.extend([self._config] * len(sources))
        self._open.update(numbers)
        self._batches.append(numbers)

    def decode(self, until_a_place_is_free: bool = False) -> list[list[list[Hypothesis]]]:
        """Make steps. Returns the results of batches that are done, up to the first that is not."""
        with torch.inference_mode():
            for done in decode(self._backend, self._results):
                self._open.difference_update(done)
                if until_a_place_is_free and len(self._backend.sentences) < self.size:
                    break
        found = []
        while self._batches and self._open.isdisjoint(self._batches[0]):
            found.append([self._results.best(number) for number in self._batches.popleft()])
        return found


def _choosing_ahead(
    engine: Engine[Any],
    batches: Iterable[tuple[Sequence[Sequence[int]], BatchRetrieval | None]],
    config: DecodingConfig,
) -> Iterator[list[list[Hypothesis]]]:
    """Search one batch after another. While one is decoded, the segments of the next are chosen."""
    with ThreadPoolExecutor(1, "knnmt-choose") as beside:
        earlier: Callable[[OnStarted], list[list[Hypothesis]]] | None = None
        for sources, retrieval in batches:
            chosen = None
            if retrieval is not None and retrieval.chooses:
                chosen = _SegmentsAhead(beside, partial(retrieval.choose, sources))
            if earlier is not None:
                yield earlier(ignore if chosen is None else chosen.begin)
            earlier = partial(_search_once, chosen, engine, sources, config, retrieval)
        if earlier is not None:
            yield earlier(ignore)


class _SegmentsAhead:
    """Chooses the segments of a batch in another thread. It begins late, because it slows down the start of a batch."""

    def __init__(self, beside: ThreadPoolExecutor, choose: Callable[[], object]) -> None:
        self._beside, self._choose = beside, choose
        self._chosen: Future[object] | None = None

    def begin(self) -> None:
        self._chosen = self._beside.submit(self._choose)

    def finish(self) -> None:
        """Wait for the choice, if it has begun."""
        if self._chosen is not None:
            self._chosen.result()


def _search_once(
    chosen: _SegmentsAhead | None,
    engine: Engine[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None,
    on_started: OnStarted,
) -> list[list[Hypothesis]]:
    """Search after the segments are chosen."""
    if chosen is not None:
        chosen.finish()
    return search(engine, sources, config, retrieval, on_started=on_started)
