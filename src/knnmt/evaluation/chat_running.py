"""A large language model as a system of an evaluation: each text with the memory's segments that cover it best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.base import Engine
from knnmt.evaluation.chat import ChatEndpoint
from knnmt.evaluation.systems import System
from knnmt.retrieval.open_store import Snapshot
from knnmt.translator.memories import Memories, languages_of
from knnmt.translator.translator import Translator


def chat_signature(translator: Translator, system: System) -> str:
    """Identifies it in published scores."""
    assert system.chat is not None, "only such systems are run here"  # noqa: S101
    signature = system.chat.signature()
    if system.datastore is None:
        return signature
    store = Memories(translator.engine).open(system.datastore).opened.signature()
    return f"{store.rpartition('|index:')[0]}|{signature}"


def chat_translations(
    translator: Translator, system: System, sources: Sequence[str], languages: tuple[str, str]
) -> tuple[list[str], int, float]:
    """Hypotheses, one for each source, the number of tokens that the endpoint counted, and seconds."""
    assert system.chat is not None, "only such systems are run here"  # noqa: S101
    shown: list[list[SegmentPair]] = [[] for _ in sources]
    if system.datastore is not None:
        languages = languages_of(system.datastore)
        opened = Memories(translator.engine).open(system.datastore).opened
        shown = chosen_pairs(translator.engine, opened.snapshot, sources, system.chat.examples)
    endpoint = ChatEndpoint(system.chat, languages)
    started = time.perf_counter()
    said = [endpoint.translate(text, examples) for text, examples in zip(sources, shown, strict=True)]
    return [each.text for each in said], sum(each.tokens for each in said), time.perf_counter() - started


def chosen_pairs(engine: Engine[Any], store: Snapshot, sources: Sequence[str], count: int) -> list[list[SegmentPair]]:
    """The segments that cover each source best. The best one is last, next to the text."""
    tokens = [source[:-1] for source in engine.tokenizer.encode_sources(list(sources))]
    count = min(count, store.datastore.manifest.live_sentences)
    if not count:
        return [[] for _ in sources]
    segments = store.datastore.segments
    first = np.cumsum([0, *(segment.record.sentences for segment in segments)])
    found = []
    for row in store.source_index.choose(tokens, count).sentences:
        numbers = row[row >= 0][::-1]
        places = np.searchsorted(first, numbers, side="right") - 1
        found.append(
            [segments[place].pair(int(number - first[place])) for place, number in zip(places, numbers, strict=True)]
        )
    return found
