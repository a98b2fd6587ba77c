"""One way into decoding, whichever loop fits the device and what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from knnmt.config import DecodingConfig
from knnmt.decoding.beam import beam_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.recorded import recorded_search
from knnmt.engine.base import Engine
from knnmt.engine.fixed_state import RecordingEngine
from knnmt.retrieval.retriever import BatchRetrieval


def search(
    engine: Engine[Any],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
) -> list[list[Hypothesis]]:
    """The `config.n_best` best hypotheses for each source, best first; greedy search for a beam of 1."""
    # Steps of fixed shape can be replayed on a GPU, where nothing looks back at the text or chooses rows to search.
    fixed = engine.device.type == "cuda" and not config.suppressed_sequences
    if fixed and isinstance(engine, RecordingEngine) and (retrieval is None or retrieval.recorded() is not None):
        return recorded_search(engine, sources, config, retrieval)
    return (greedy_search if config.beam == 1 else beam_search)(engine, sources, config, retrieval)
