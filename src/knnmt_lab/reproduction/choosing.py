"""Choices that were once made while looking at reported text, made again on the half that is not reported.

The form of λ and τ of the cache: rows of block B translate pairs that no setting was tuned on. The inputs of our gate
and its L1 term: by the loss of held-out text if half of its positions are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import torch

from knnmt import (
    Engine,
    GateConfig,
    OpenStore,
    RetrievalConfig,
    SegmentPair,
    gate_text,
    resampled_scores,
    spread,
    train_gate,
)
from knnmt_lab.reproduction.choices import told
from knnmt_lab.reproduction.plan import SEEDS, TAUS, Row
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import Lines
from knnmt_lab.reproduction.tuning import TUNING_PAIRS

FILE, GATE_FILE = "B/other-half.json", "A/gate-choice.json"
COMPARED = "B/knn"
CHOICES = {"B/knn-fixed": "fixed λ instead of λ that fades", **{f"B/cache-{tau}": f"cache τ = {tau}" for tau in TAUS}}
PAIRS = 300
_FEATURES = ("confidence", "entropy")
_L1 = (0.0, 0.1, 0.2)
_SHARE = 0.5


def rows_to_choose_from(rows: Sequence[Row]) -> list[Row]:
    """The requested rows that are compared; none unless the row that all are compared with is requested, too."""
    found = [row for row in rows if row.name in {COMPARED, *CHOICES}]
    return found if len(found) > 1 and any(row.name == COMPARED for row in found) else []


def untuned(pairs: Sequence[SegmentPair]) -> list[SegmentPair]:
    """Pairs for tuning that no k, T or λ was tuned on; of a short text, in which there are none, all."""
    tuned = {pair.origin for pair in spread(pairs, TUNING_PAIRS)}
    return spread([pair for pair in pairs if pair.origin not in tuned] or pairs, PAIRS)


def other_half_table(results: Results) -> Lines | None:
    """BLEU of each choice against `COMPARED` on the other half, with intervals as in `choices`; None if not run."""
    records = [results.other_halves.get(domain) for domain in results.domains]
    there = [record for record in records if record is not None]
    if not there or len(there) < len(records):
        return None
    lines = [["", *results.domains, "average", "average, chrF"]]
    language = results.plan["target language"]
    scores = [
        {
            name: resampled_scores(
                hypotheses, [pair.target for pair in untuned(results.texts[domain].tuning)], language
            )
            for name, hypotheses in record.items()
        }
        for domain, record in zip(results.domains, there, strict=True)
    ]
    for name, label in CHOICES.items():
        if all(name in each for each in scores):
            found = [[one - other for one, other in zip(each[name], each[COMPARED], strict=True)] for each in scores]
            averages = [sum(each[metric] for each in found) / len(found) for metric in (0, 1)]
            lines.append([label, *(told(each) for each in (*(every[0] for every in found), *averages))])
    return lines if len(lines) > 1 else None


def gate_choice(
    engine: Engine[Any], opened: OpenStore, pairs: Sequence[SegmentPair], config: RetrievalConfig
) -> dict[str, Any]:
    """Losses of gates with other inputs and other L1 terms, on a fifth of the pairs, which none was trained on.

    In nats per token: if every position is searched, the half with the largest λ, and half of them by chance. The
    variant with the smallest loss for half of the positions comes first.
    """
    parts = [pair for place, pair in enumerate(pairs) if place % 5 > 1], pairs[1::5], pairs[::5]
    texts = [gate_text(engine, opened, some, config, _FEATURES) for some in parts]
    found = []
    for count, l1 in product(range(len(_FEATURES) + 1), _L1):
        asked = GateConfig(features=_FEATURES[:count], l1=l1, seed=SEEDS[0])
        width = texts[0].inputs.shape[1] - len(_FEATURES) + count
        one, other, judged = (replace(each, inputs=each.inputs[:, :width]) for each in texts)
        weights = train_gate(opened, one, other, config, asked).predicted(judged)
        every, alone = judged.loss(weights), judged.loss(torch.zeros(1))
        half = judged.loss(weights * (weights > weights.quantile(1 - _SHARE)))
        chance = _SHARE * every + (1 - _SHARE) * alone
        found.append({"features": asked.features, "l1": l1, "every": every, "half": half, "chance": chance})
    return {"variants": sorted(found, key=lambda each: each["half"]), "positions": len(texts[-1])}


def chosen_gate(record: dict[str, Any], seed: int) -> GateConfig:
    """The training of our gate with the inputs and the L1 term that lost least."""
    best = record["variants"][0]
    return GateConfig(features=tuple(best["features"]), l1=best["l1"], seed=seed)


def gate_table(results: Results) -> Lines | None:
    """The loss of each variant of our gate if half of the positions are searched; None if not run in all domains."""
    records = [results.gate_choices.get(domain) for domain in results.domains]
    there = [record for record in records if record is not None]
    if len(there) < len(records) or not there:
        return None
    lines = [["inputs beside the state, L1", *results.domains, "average", "every position", "half by chance"]]
    for count, l1 in product(range(len(_FEATURES) + 1), _L1):
        features = list(_FEATURES[:count])
        of_domains = [
            next(each for each in record["variants"] if list(each["features"]) == features and each["l1"] == l1)
            for record in there
        ]
        means = [fmean(each[name] for each in of_domains) for name in ("half", "every", "chance")]
        cells = [f"{each['half']:.3f}" for each in of_domains]
        lines.append([f"{', '.join(features) or 'none'}; {l1:g}", *cells, *(f"{each:.3f}" for each in means)])
    return lines
