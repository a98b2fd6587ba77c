"""What tuning needs a search for: the states that beams go through, and settings compared by BLEU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.decoding.beam import beam_search
from knnmt.errors import MissingDependencyError
from knnmt.retrieval.cache_tuning import CacheTradeOff, DecodedStates
from knnmt.retrieval.retriever import BatchRetrieval, OpenStore, Retrieval
from knnmt.translator.memories import Store
from knnmt.translator.translator import Translator

BEAM = 5
PAPER_KS = (8, 16, 32, 64)
PAPER_WEIGHTS = (0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class Scored:
    """Settings, None for the model alone, with BLEU of some text translated with them, and the searches saved."""

    config: RetrievalConfig | None
    bleu: float
    saved: float


def beam_states(
    translator: Translator, opened: OpenStore, config: RetrievalConfig, sources: Iterable[str]
) -> DecodedStates:
    """The states that beam search of these sources goes through with these settings. Sources too long are left out."""
    engine = translator.engine
    decoding = translator.decoding(beam=BEAM)
    steps: list[Tensor] = []

    def record(representations: Tensor) -> Tensor:
        steps.append(representations.cpu())
        return torch.ones(len(representations), dtype=torch.bool, device=representations.device)

    retrieval = Retrieval(opened, replace(config, cache=None), gate=record)
    lengths: list[list[int]] = []
    for source in sources:
        tokens = engine.tokenizer.encode_sources([source])
        if len(tokens[0]) <= engine.max_positions:
            before = len(steps)
            beam_search(engine, tokens, decoding, BatchRetrieval([retrieval]))
            lengths.append([len(step) for step in steps[before:]])
    rows = [sum(widths) for widths in lengths]
    return DecodedStates(
        torch.cat(steps) if steps else torch.empty(0, engine.dim),
        torch.arange(len(rows)).repeat_interleave(torch.tensor(rows, dtype=torch.long)),
        torch.tensor([step for widths in lengths for step, width in enumerate(widths) for _ in range(width)]).long(),
    )


def score(
    translator: Translator,
    datastore: Store,
    pairs: Sequence[SegmentPair],
    configs: Iterable[RetrievalConfig | None],
) -> Iterator[Scored]:
    """BLEU of the pairs' targets with each of several settings, as each is translated; None is the model alone."""
    sacrebleu = load_sacrebleu()
    references = [[pair.target for pair in pairs]]
    for config in configs:
        before = translator.statistics.rows, translator.statistics.searches
        memory = {"datastore": None} if config is None else {"datastore": datastore, "profile": config}
        texts = [each.text for each in translator.translate([pair.source for pair in pairs], **memory)]
        rows, searches = translator.statistics.rows - before[0], translator.statistics.searches - before[1]
        bleu = float(sacrebleu.corpus_bleu(texts, references).score)
        yield Scored(config, bleu, 1 - searches / rows if rows else 0.0)


def paper_grid(temperature: float) -> list[RetrievalConfig]:
    """The settings that the paper chooses among by BLEU, at one temperature, which it fixes for each domain."""
    return [RetrievalConfig(k, weight, temperature) for k, weight in product(PAPER_KS, PAPER_WEIGHTS)]


def confirmed_cache(
    scores: Callable[[RetrievalConfig], Scored],
    config: RetrievalConfig,
    trade_offs: Sequence[CacheTradeOff],
    most_lost: float,
) -> CacheTradeOff | None:
    """The largest τ, of rising ones, with which BLEU is at most `most_lost` below that without a cache; None for none.

    scores: translates with settings and scores; from the largest τ down it is asked until one holds
    """
    if not trade_offs:
        return None
    whole = scores(config).bleu
    for each in reversed(trade_offs):
        if scores(replace(config, cache=CacheConfig(each.threshold))).bleu >= whole - most_lost:
            return each
    return None


def load_sacrebleu() -> Any:
    """The package that scores, which is optional."""
    try:
        import sacrebleu
    except ImportError as error:
        raise MissingDependencyError("sacrebleu", "BLEU", "evaluate") from error
    return sacrebleu
