"""Beam search with the results of `transformers`' own: same candidates, same length penalty, same stopping.

There is one loop, `decode`, and three backends that make its steps:

    reference   PyTorch: every engine, device, retrieval and constraint (`reference`)
    compiled    a CPU: steps in compiled code, with the model alone or segments of each sentence (`compiled`)
    graphs      a GPU: steps of fixed shape, recorded as CUDA graphs (`graphs`)

`backend_for` chooses. Greedy search is a beam of 1 that stops at the first hypothesis that ends. A sentence is done
when `beam` hypotheses are finished and no running one can still beat the worst of them, or when no continuation is
possible. A sentence that is impossible from the start has no hypothesis.
"""

from __future__ import annotations

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
from knnmt.decoding.hypothesis import Begun, Found, Growing, Hypothesis, Results, unheard, unnoticed
from knnmt.decoding.reference import ReferenceBackend
from knnmt.engine.base import Engine
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
    found: Found = unheard,
    growing: Growing | None = None,
    begun: Begun = unnoticed,
    make: MakeBackend | None = None,
) -> list[list[Hypothesis]]:
    """The `config.n_best` best hypotheses for each source, best first.

    found: is called for each sentence when it is done
    growing: is called with the progress of the others after every step
    begun: is called once if steps are recorded on a GPU, when it has work to do
    make: makes the backend; that of `backend_for` without it
    """
    if config.beam == 1:
        config = replace(config, early_stopping=True)
    make = make or backend_for(engine, config, retrieval).make
    results = Results([config] * len(sources))
    with torch.inference_mode():
        make = partial(GraphBackend, begun=begun) if make is GraphBackend else make
        decode(make(engine, sources, config, retrieval), results, found, growing)
    return [results.best(number) for number in range(len(sources))]


def decode(backend: Backend, results: Results, found: Found = unheard, growing: Growing | None = None) -> None:
    """Make steps until all sentences are done."""
    with backend.context:
        while len(backend.sentences):
            for number, hypothesis in backend.advance(results.least[backend.sentences], growing is not None):
                results.add(number, hypothesis)
            closed = results.closed(backend.sentences, backend.leaders, backend.lengths)
            if closed.any():
                for number in backend.sentences[closed].tolist():
                    found(number, results.best(number))
                backend.keep(np.flatnonzero(~closed).tolist())
            if growing is not None and len(backend.sentences):
                growing(backend.leading)


def search_each(
    engine: Engine[Any],
    batches: Iterable[tuple[Sequence[Sequence[int]], BatchRetrieval | None]],
    config: DecodingConfig,
) -> Iterator[list[list[Hypothesis]]]:
    """The same for one batch after another. While a GPU decodes a batch, the segments of the next are chosen."""
    with ThreadPoolExecutor(1, "knnmt-choose") as beside:
        earlier: Callable[[Begun], list[list[Hypothesis]]] | None = None
        for sources, retrieval in batches:
            chosen = None
            if engine.device.type == "cuda" and retrieval is not None and retrieval.chooses:
                chosen = _SegmentsAhead(beside, partial(retrieval.choose, sources))
            if earlier is not None:
                yield earlier(unnoticed if chosen is None else chosen.begin)
            earlier = partial(_search_once, chosen, engine, sources, config, retrieval)
        if earlier is not None:
            yield earlier(unnoticed)


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
    begun: Begun,
) -> list[list[Hypothesis]]:
    """Search after the segments are chosen."""
    if chosen is not None:
        chosen.finish()
    return search(engine, sources, config, retrieval, begun=begun)
