"""Methods that were published after the paper: trained combiners, with their published gains beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from knnmt import (
    Engine,
    OpenStore,
    RetrievalConfig,
    SegmentPair,
    divide,
    spread,
    tune_positions,
)
from knnmt_lab.combiner_rows import collect_rows
from knnmt_lab.combiner_training import CombinerConfig, train_combiner
from knnmt_lab.reproduction.grid import KS
from knnmt_lab.reproduction.plan import COMBINERS, SEEDS
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import NOT_RUN, Lines, Tables

# By the names of our rows: BLEU, BLEU of plain kNN-MT in the same source, and the source. Means of the four domains, in
# the software named, with a model of 1,024 dimensions.
PUBLISHED: dict[str, tuple[float, float, str]] = {
    "B/meta-k": (46.69, 45.40, "knn-box"),
    "B/robust": (47.49, 45.40, "knn-box"),
    "B/kernel-smoothed": (46.98, 45.40, "knn-box"),
    "sk-mt": (47.84, 47.30, "knn-models"),
}
PAIRS = 1000


def combiner_directory(store: Path, name: str, seed: int) -> Path:
    """Where a combiner of a store is that was trained with a seed."""
    return store / "seeds" / name / str(seed)


def taught_and_validated(pairs: Sequence[SegmentPair]) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """The pairs for tuning that teach a combiner, and the fifth that says when to stop."""
    return divide(spread(pairs, PAIRS), 0.8)


def trained_combiner(
    engine: Engine[Any], opened: OpenStore, pairs: Sequence[SegmentPair], config: RetrievalConfig, name: str
) -> dict[str, Any]:
    """Train a combiner of a store with several seeds, and save each in a directory of its own.

    Return the losses of all seeds, on the part of the text that decides when to stop.
    """
    method, k = COMBINERS[name]
    asked = CombinerConfig(method)
    config = replace(config, k=k or asked.usual_k, cache=None)
    parts = taught_and_validated(pairs)
    training, validation = (collect_rows(engine, opened, some, max(KS), None, config.use_counts) for some in parts)
    fading = tune_positions(training.positions()).fading.fading
    found = [train_combiner(opened, training, validation, config, fading, replace(asked, seed=seed)) for seed in SEEDS]
    for seed, each in zip(SEEDS, found, strict=True):
        place = combiner_directory(opened.datastore.path, name, seed)
        place.mkdir(parents=True, exist_ok=True)
        each.combiner.write(place)
    records = [each.combiner.record for each in found]
    return {
        "losses": [each.losses for each in records],
        "updates": [each.updates for each in records],
        "pairs": records[0].pairs,
    }


def later_table(results: Results, tables: Tables) -> Lines | None:
    """BLEU, and gains over plain kNN-MT: ours (block B, over fixed λ) and published; None if none was run."""
    lines = [["", *results.domains, "average", "gain over fixed λ", "published gain", "from"]]
    for name, (published, plain, source) in PUBLISHED.items():
        line = tables.bleu(name)
        if set(line) != {NOT_RUN}:
            lines.append([tables.titled(name), *line, _gain(results, name), f"{published - plain:+.2f}", source])
    return lines if len(lines) > 1 else None


def _gain(results: Results, name: str) -> str:
    """The gain over fixed λ, on average over the domains and seeds; "not run" unless all domains have both."""
    ours, fixed = results.average_bleu(name), results.average_bleu("B/knn-fixed")
    return NOT_RUN if ours is None or fixed is None else f"{ours - fixed:+.2f}"
