"""A large language model as a system of an evaluation: each text with the memory's segments that cover it best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from knnmt import Engine, OpenStore, SegmentPair, System, Translator, __version__, open_store
from knnmt.errors import SettingError
from knnmt_lab.chat import ChatEndpoint, ChatSettings


class ChatSystem(ChatSettings):
    """A large language model that is a system of an evaluation."""

    def signature(self, translator: Translator, datastore: Path | None) -> str:
        """Identifies it in published scores. A model of this name may answer differently later."""
        signature = f"llm:{self.model}|examples:{self.examples}|v:{__version__}"
        if datastore is None:
            return signature
        store = _opened(translator, datastore).signature()
        return f"{store.rpartition('|index:')[0]}|{signature}"

    def translations(
        self, translator: Translator, datastore: Path | None, sources: Sequence[str], languages: tuple[str, str]
    ) -> tuple[list[str], int, float]:
        """Hypotheses, one for each source, the number of tokens that the endpoint counted, and seconds."""
        shown: list[list[SegmentPair]] = [[] for _ in sources]
        if datastore is not None:
            opened = _opened(translator, datastore)
            manifest = opened.datastore.manifest
            languages = manifest.source_language, manifest.target_language
            shown = chosen_pairs(translator.engine, opened, sources, self.examples)
        endpoint = ChatEndpoint(self, languages)
        started = time.perf_counter()
        said = [endpoint.translate(text, examples) for text, examples in zip(sources, shown, strict=True)]
        return [each.text for each in said], sum(each.tokens for each in said), time.perf_counter() - started


def parse_chat(text: str, name: str, url: str, others: Sequence[str]) -> System:
    """A large language model: `NAME=URL,model=MODEL,store=STORE,examples=5`."""
    given: dict[str, str] = {}
    for other in others:
        key, equals, value = other.partition("=")
        if key not in ("model", "examples", "store") or not equals or key in given:
            raise SettingError(
                f"{text}: {other!r} is not one of model=NAME, examples=N and store=STORE, each given once"
            )
        given[key] = value
    place = given.get("store")
    usual = "0" if place is None else "1"
    try:
        examples = int(given.get("examples", usual))
    except ValueError:
        raise SettingError(f"{text}: {given['examples']!r} is not a number of examples") from None
    if (examples > 0) != (place is not None):
        raise SettingError(f"{text}: examples come from a memory: give store=STORE and examples=N, or neither")
    chat = ChatSystem(url, given.get("model", ""), examples)
    return System(name or "llm", None if place is None else Path(place), other=chat)


def _opened(translator: Translator, datastore: Path) -> OpenStore:
    engine = translator.engine
    return open_store(datastore, engine, device="cpu", exact=True)


def chosen_pairs(engine: Engine[Any], opened: OpenStore, sources: Sequence[str], count: int) -> list[list[SegmentPair]]:
    """The segments that cover each source best. The best one is last, next to the text."""
    tokens = [source[:-1] for source in engine.tokenizer.encode_sources(list(sources))]
    store = opened.snapshot
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
