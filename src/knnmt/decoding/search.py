"""The entry to decoding: it chooses the loop that fits the device and the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeGuard

from knnmt.config import DecodingConfig
from knnmt.decoding.beam import beam_search
from knnmt.decoding.drafted import DraftedSearch, drafted_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Begun, Found, Growing, Hypothesis, unheard, unnoticed
from knnmt.decoding.recorded import recorded_search
from knnmt.decoding.recorded_drafts import RecordedDrafting, recorded_drafts
from knnmt.engine.base import Engine
from knnmt.engine.fixed_state import RecordingEngine
from knnmt.engine.state import EngineInTurn
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.recorded import RecordedRetrieval
from knnmt.retrieval.retriever import BatchRetrieval

# The largest batch with drafts, as far as they were measured to pay: more rows keep a device busy without them.
MAX_DRAFTED = {"cpu": 8, "cuda": 64}


def search(
    engine: Engine[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
    found: Found = unheard,
    growing: Growing | None = None,
    begun: Begun = unnoticed,
) -> list[list[Hypothesis]]:
    """The `config.n_best` best hypotheses for each source, best first; greedy search for a beam of 1.

    found: is called for sentences that are done before others; perhaps not for all
    growing: is called with the progress of the others, if steps are not recorded on a GPU
    begun: is called once if steps are recorded, when the device has work to do
    """
    drafts = _drafts(engine, sources, config, retrieval)
    if retrieval is not None and isinstance(drafts, RecordedRetrieval):
        assert isinstance(engine, RecordingEngine)  # noqa: S101 - since there is such a retrieval
        return recorded_drafts(engine, sources, config, retrieval, drafts, found, begun)
    # Steps of fixed shape can be replayed on a GPU, unless something looks back at the text or chooses rows to search.
    if _is_fixed(engine, config) and (retrieval is None or retrieval.recorded() is not None):
        return recorded_search(engine, sources, config, retrieval, found, begun)
    if config.beam > 1:
        return beam_search(engine, sources, config, retrieval, found, growing)
    if retrieval is not None and isinstance(drafts, CompiledSteps):
        assert isinstance(engine, EngineInTurn)  # noqa: S101 - as above
        return drafted_search(engine, sources, config, retrieval, drafts, found, growing)
    return greedy_search(engine, sources, config, retrieval, found, growing)


def _is_fixed(engine: Engine[Any], config: DecodingConfig) -> TypeGuard[RecordingEngine]:
    """Whether steps have a fixed shape if retrieval allows it."""
    return engine.device.type == "cuda" and not config.suppressed_sequences and isinstance(engine, RecordingEngine)


def _drafts(
    engine: Engine[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None,
) -> RecordedRetrieval | CompiledSteps | None:
    """The retrieval of a batch whose tokens are drafted: recorded on a GPU, compiled on a CPU. None if they are not."""
    few = len(sources) <= MAX_DRAFTED.get(engine.device.type, 0)
    if retrieval is None or config.beam > 1 or not few:
        return None
    if _is_fixed(engine, config):
        recorded = retrieval.recorded()
        return recorded if recorded is not None and recorded.by_segment else None
    return retrieval.in_turn() if isinstance(engine, EngineInTurn) and engine.takes_turns else None


def search_each(
    engine: Engine[Any],
    batches: Iterable[tuple[Sequence[Sequence[int]], BatchRetrieval | None]],
    config: DecodingConfig,
) -> Iterator[list[list[Hypothesis]]]:
    """The same for one batch after another.

    With drafts, sentences of the next batch take the places of those that are done. While a GPU decodes a batch, the
    segments of the next are chosen.
    """
    with ThreadPoolExecutor(1, "knnmt-choose") as beside:
        earlier: Callable[[Begun], list[list[Hypothesis]]] | None = None
        drafting: RecordedDrafting | DraftedSearch | None = None
        for sources, retrieval in batches:
            drafts = _drafts(engine, sources, config, retrieval)
            if drafting is not None and not (drafts is not None and drafting.takes(sources, drafts)):
                yield from drafting.finish()
                drafting = None
            if retrieval is not None and drafts is not None:
                if earlier is not None:
                    yield earlier(unnoticed)
                    earlier = None
                if isinstance(drafts, RecordedRetrieval):
                    assert isinstance(engine, RecordingEngine)  # noqa: S101 - since there is such a retrieval
                    drafting = drafting or RecordedDrafting(engine, config, drafts)
                    assert isinstance(drafting, RecordedDrafting)  # noqa: S101 - it has taken the batch
                    drafting.add(sources, retrieval, beside.submit(retrieval.choose, sources))
                else:
                    assert isinstance(engine, EngineInTurn)  # noqa: S101 - as above
                    drafting = drafting or DraftedSearch(engine, config)
                    assert isinstance(drafting, DraftedSearch)  # noqa: S101 - as above
                    drafting.add(sources, retrieval, drafts)
                yield from drafting.advance()
                continue
            chosen = None
            if engine.device.type == "cuda" and retrieval is not None and retrieval.chooses:
                chosen = _SegmentsAhead(beside, partial(retrieval.choose, sources))
            if earlier is not None:
                yield earlier(unnoticed if chosen is None else chosen.begin)
            earlier = partial(_search_once, chosen, engine, sources, config, retrieval)
        if earlier is not None:
            yield earlier(unnoticed)
        if drafting is not None:
            yield from drafting.finish()


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
