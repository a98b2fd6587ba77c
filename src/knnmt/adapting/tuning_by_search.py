"""The parts of tuning that need a search:

states that beams pass through, settings compared by BLEU, a confirmed cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from knnmt.adapting.cache_tuning import CacheTradeOff, DecodedStates
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.decoding.reference import ReferenceBackend
from knnmt.decoding.search import search
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.evaluation.scoring import score as corpus_scores
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.memories import Store
from knnmt.translator.settings import PRESETS, translation_settings
from knnmt.translator.translator import CallKeywords, Translator

BEAM = 5
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Scored:
    """Settings, None for the model alone, with BLEU of text translated with them, and the share of searches saved."""

    config: RetrievalConfig | None
    bleu: float
    saved: float


class _RecordingRetrieval(BatchRetrieval):
    """Retrieval of a batch that records every query state, by sentence and step."""

    def __init__(self, retrieval: Retrieval, sentences: int) -> None:
        super().__init__([retrieval] * sentences)
        self._numbers = list(range(sentences))
        self.seen: list[list[Tensor]] = [[] for _ in range(sentences)]

    def mix(self, representations: Tensor, log_probabilities: Tensor, history: Tensor) -> Tensor:
        for number, states in zip(self._numbers, representations.cpu(), strict=True):
            self.seen[number].append(states)
        return super().mix(representations, log_probabilities, history)

    def keep(self, sentences: Sequence[int]) -> None:
        self._numbers = [self._numbers[place] for place in sentences]
        super().keep(sentences)


def beam_states(
    translator: Translator, opened: OpenStore, config: RetrievalConfig, sources: Iterable[str]
) -> DecodedStates:
    """The states of a beam search over these sources with these settings. Sources that are too long are left out."""
    engine = translator.engine
    decoding = translator.decoding(beam=BEAM)
    retrieval = Retrieval(opened, replace(config, cache=None))
    seen: list[list[Tensor]] = []
    remaining = iter(sources)
    while texts := list(islice(remaining, _BATCH)):
        encoded = engine.tokenizer.encode_sources(texts)
        if batch := [source for source in encoded if len(source) <= engine.max_positions]:
            recording = _RecordingRetrieval(retrieval, len(batch))
            search(engine, batch, decoding, recording, make=ReferenceBackend)  # the others call no `mix`
            seen += recording.seen
    places = [
        (sentence, step) for sentence, steps in enumerate(seen) for step, states in enumerate(steps) for _ in states
    ]
    states = [states for steps in seen for states in steps]
    sentences, steps = torch.tensor(places, dtype=torch.long).view(-1, 2).T
    return DecodedStates(torch.cat(states) if states else torch.empty(0, engine.dim), sentences, steps)


def score(
    translator: Translator,
    datastore: Store,
    pairs: Sequence[SegmentPair],
    configs: Iterable[RetrievalConfig | None],
    own: Mapping[str, Any] | None = None,
) -> Iterator[Scored]:
    """BLEU against the pairs' targets with each of several settings, one by one; None is the model alone.

    own: names of your own combiner and gate
    """
    references = [pair.target for pair in pairs]
    language = translator.memories.open(datastore).opened.datastore.manifest.target_language
    require_sacrebleu(language)
    for config in configs:
        before = translator.statistics.rows, translator.statistics.searches
        memory: CallKeywords = {"datastore": None, "settings": "raw"}
        if config is not None:
            asked = RetrievalSettings(profile=config, **(own or {}))
            memory = {"datastore": datastore, "settings": translation_settings(asked).over(PRESETS["raw"])}
        texts = [each.text for each in translator.translate([pair.source for pair in pairs], **memory)]
        rows, searches = translator.statistics.rows - before[0], translator.statistics.searches - before[1]
        bleu = corpus_scores(texts, references, language).bleu.value
        yield Scored(config, bleu, 1 - searches / rows if rows else 0.0)


def confirmed_cache(
    scores: Callable[[RetrievalConfig], Scored],
    config: RetrievalConfig,
    trade_offs: Sequence[CacheTradeOff],
    most_lost: float,
) -> CacheTradeOff | None:
    """The largest of rising τ with which BLEU is at most `most_lost` below BLEU without a cache; None if there is none.

    scores: translates with settings and scores; it is called from the largest τ down until one is good enough
    """
    if not trade_offs:
        return None
    whole = scores(config).bleu
    for each in reversed(trade_offs):
        if scores(replace(config, cache=CacheConfig(each.threshold))).bleu >= whole - most_lost:
            return each
    return None
