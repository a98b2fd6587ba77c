"""Settings of the systems, by the likelihood of the half of the development text that is not reported.

The paper chooses k and λ from a grid by BLEU, and takes T from earlier work. T depends on the keys of a model, so here
it is tuned as well. Each store is tuned separately; rows that differ only in their cache share the result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from knnmt import (
    Engine,
    FastConfig,
    Gate,
    GateConfig,
    OpenStore,
    Positions,
    RetrievalConfig,
    SegmentPair,
    ThresholdGate,
    TrainedGate,
    divide,
    gate_text,
    score,
    search_text,
    spread,
    squared_temperatures,
    train_gate,
    tune_positions,
)
from knnmt_lab.reproduction import published_gate
from knnmt_lab.reproduction.grid import KS, WEIGHTS, first_with_most
from knnmt_lab.reproduction.plan import ALPHAS, Row
from knnmt_lab.reproduction.records import settings_of
from knnmt_lab.reproduction.sk_mt import SEGMENTS, sk_mt_settings

TUNING_PAIRS = 300  # enough for three numbers; a gate is trained on all pairs
BLEU_PAIRS = 100  # on which the 16 settings of the paper's grid are compared by BLEU


def tuned_settings(
    engine: Engine[Any], opened: OpenStore, pairs: Sequence[SegmentPair], fades: bool, fast: int | None = None
) -> dict[str, Any]:
    """Settings of a store, with their loss and that of the model alone, in nats per token.

    pairs: must not be in the store
    fades: λ fades with distance, as in block B; otherwise λ is fixed, and λ and k come from the paper's grid
    fast: c, for Fast kNN-MT
    """
    few = spread(pairs, TUNING_PAIRS)
    config = FastConfig(fast) if fast else None
    positions = search_text(engine, opened, few, max(KS), scope=config).positions()
    if fades:
        found = tune_positions(positions).fading
        best, loss = found.fading, found.fading_loss
    else:
        loss, best = as_published(positions, config)
    best = replace(best, forms=False)  # only retrieval is compared
    return {"settings": settings_of(best), "loss": loss, "alone": positions.loss(None), "pairs": len(few)}


def tuned_by_segment(
    engine: Engine[Any], opened: OpenStore, pairs: Sequence[SegmentPair], plain: bool, count: int
) -> dict[str, Any]:
    """Settings for search by `count` segments; with `plain`, for SK-MT, which has its own number."""
    few = spread(pairs, TUNING_PAIRS)
    if plain:
        positions = search_text(engine, opened, few, max(KS), scope=SEGMENTS).positions()
        loss, best = sk_mt_settings(positions)
        alone = positions.loss(None)
    else:
        tuned = tune_positions(search_text(engine, opened, few, scope=count).positions(), scope=count)
        best, loss, alone = tuned.fading.fading, tuned.fading.fading_loss, tuned.alone
    best = replace(best, forms=False)
    return {"settings": settings_of(best), "loss": loss, "alone": alone, "pairs": len(few)}


def as_published(positions: Positions, fast: FastConfig | None = None) -> tuple[float, RetrievalConfig]:
    """The smallest k of the paper's grid that has nearly all of the best gain, with its T and λ.

    After pruning, all entries weigh the same: the paper's code counts merged entries, but never uses the counts.
    """
    positions = replace(positions, log_counts=(positions.log_counts[1],) * 2)
    plain = RetrievalConfig(k=1, interpolation_weight=0.0, temperature=1.0, use_counts=False, fast=fast)
    temperatures = squared_temperatures(positions)
    width = positions.distances_sq.shape[1]
    found = []
    for k in [k for k in KS if k <= width] or [width]:
        loss, temperature, weight = min(positions.first(k).best_fixed(temperatures, WEIGHTS))
        found.append((loss, k, weight, temperature / plain.squared_temperature))
    loss, k, weight, temperature = first_with_most(found, lambda each: each[0], positions.loss(None))
    return loss, replace(plain, k=k, interpolation_weight=weight, temperature=temperature)


def trained_gate(
    engine: Engine[Any], opened: OpenStore, pairs: Sequence[SegmentPair], config: RetrievalConfig
) -> dict[str, Any]:
    """Train the gate of a store for its settings and save it there; return its figures."""
    features = GateConfig().features
    texts = [gate_text(engine, opened, some, config, features) for some in divide(pairs, 0.8)]
    found = train_gate(opened, texts[0], texts[1], config)
    found.gate.write(opened.datastore.path)
    judged = [
        {"alpha": each.threshold, "searched": each.searched, "gate": each.gate, "chance": each.chance}
        for each in found.judge(texts[1], ALPHAS)
    ]
    return {"losses": found.gate.record.losses, "epochs": found.gate.record.epochs, "thresholds": judged}


def tuned_by_bleu(
    pairs: Sequence[SegmentPair],
    by_likelihood: RetrievalConfig,
    translations: Callable[[RetrievalConfig, list[str]], list[str]],
    language: str,
) -> dict[str, Any]:
    """k and λ of the paper's grid with the highest BLEU of some pairs, as published; T is that of `by_likelihood`.

    translations: translates some sources with some settings
    """
    few = spread(pairs, BLEU_PAIRS)
    sources, references = [pair.source for pair in few], [pair.target for pair in few]
    scores = []
    for k, weight in product(KS, WEIGHTS):
        config = replace(by_likelihood, k=k, interpolation_weight=weight)
        scores.append((score(translations(config, sources), references, language).bleu.value, -k, weight, config))
    bleu, _, _, best = max(scores, key=lambda each: each[:3])
    grid = [{"k": -k, "lambda": weight, "bleu": found} for found, k, weight, _ in scores]
    return {"settings": settings_of(best), "bleu": bleu, "pairs": len(few), "grid": grid}


class GatesOfStore:
    """The gates of a store at shares of searches or at the paper's α, in the place where steps are.

    A network is trained once for each seed: rows that differ in their threshold alone share it.
    own: how our gate is trained, by its seed
    """

    def __init__(
        self,
        engine: Engine[Any],
        opened: OpenStore,
        pairs: Sequence[SegmentPair],
        config: RetrievalConfig,
        own: Callable[[int], GateConfig],
    ) -> None:
        self._opened, self._config, self._asked = opened, config, own
        self._training, self._validation = (
            gate_text(engine, opened, some, config, published_gate.FEATURES) for some in divide(pairs, 0.8)
        )
        self._ngrams = published_gate.NgramStatistics(opened, engine.special_tokens.end)
        self._published: dict[int, published_gate.PublishedNetwork] = {}
        self._own: dict[int, TrainedGate] = {}

    def of(self, row: Row) -> Gate:
        """The gate of a row. α is the row's, or the one above which its share of held-out positions lies."""
        share, device = (row.share or 100) / 100, self._opened.device
        if row.published_gate:
            if row.seed not in self._published:
                self._published[row.seed] = published_gate.train_published(self._training, self._ngrams, row.seed)
            network = self._published[row.seed]
            alpha = row.alpha or published_gate.threshold_for(share, network, self._ngrams, self._validation)
            return published_gate.PublishedGate(copy.deepcopy(network).to(device), self._ngrams, alpha, row.seed)
        asked = self._asked(row.seed)
        width = self._training.inputs.shape[1] - len(published_gate.FEATURES) + len(asked.features)
        training, validation = (
            replace(text, inputs=text.inputs[:, :width]) for text in (self._training, self._validation)
        )
        if row.seed not in self._own:
            self._own[row.seed] = train_gate(self._opened, training, validation, self._config, asked).gate
        trained = self._own[row.seed]
        alpha = float(trained.predicted(validation.inputs).quantile(1 - share).clamp(1e-6, 1 - 1e-6))
        network_there = copy.deepcopy(trained.network).to(device)
        return ThresholdGate(TrainedGate(network_there, trained.record), alpha)
