"""Settings compared by BLEU of translations, as in the paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from knnmt.config import RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.evaluation.scoring import score as corpus_scores
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.memories import Store
from knnmt.translator.settings import PRESETS, translation_settings
from knnmt.translator.translator import CallKeywords, Translator

PAPER_KS = (8, 16, 32, 64)
PAPER_WEIGHTS = (0.5, 0.6, 0.7, 0.8)


def paper_grid(temperature: float) -> list[RetrievalConfig]:
    """The paper's settings to choose among by BLEU, at one temperature, which the paper fixes for each domain."""
    return [RetrievalConfig(k, weight, temperature) for k, weight in product(PAPER_KS, PAPER_WEIGHTS)]


@dataclass(frozen=True, slots=True)
class Scored:
    """Settings, None for the model alone, with BLEU of text translated with them, and the share of searches saved."""

    config: RetrievalConfig | None
    bleu: float
    saved: float


def score(
    translator: Translator,
    datastore: Store,
    pairs: Sequence[SegmentPair],
    configs: Iterable[RetrievalConfig | None],
    plugins: Mapping[str, Any] | None = None,
) -> Iterator[Scored]:
    """BLEU against the pairs' targets with each of several settings, one by one; None is the model alone.

    plugins: names of your own combiner and gate
    """
    references = [pair.target for pair in pairs]
    language = translator.memories.open(datastore).opened.datastore.manifest.target_language
    require_sacrebleu(language)
    for config in configs:
        before = translator.statistics.rows, translator.statistics.searches
        memory: CallKeywords = {"datastore": None, "settings": "raw"}
        if config is not None:
            profile = RetrievalSettings(profile=config, **(plugins or {}))
            memory = {"datastore": datastore, "settings": translation_settings(profile).over(PRESETS["raw"])}
        texts = [each.text for each in translator.translate([pair.source for pair in pairs], **memory)]
        rows, searches = translator.statistics.rows - before[0], translator.statistics.searches - before[1]
        bleu = corpus_scores(texts, references, language).bleu.value
        yield Scored(config, bleu, 1 - searches / rows if rows else 0.0)
