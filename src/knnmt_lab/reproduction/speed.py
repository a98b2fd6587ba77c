"""The speed of systems (the paper's figures): they take turns within every round, so that a slow moment affects all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from knnmt import Translator
from knnmt_lab.bench.running import load_average
from knnmt_lab.reproduction.translating import ReadyRow


def measure_speed(
    translator: Translator,
    systems: Sequence[ReadyRow],
    sources: Sequence[str],
    batch_size: int,
    rounds: int,
    keep: Callable[[dict[str, Any]], None] = lambda _record: None,
) -> dict[str, Any]:
    """Every round of every system: tokens, seconds and where the time went. One batch warms up each system first.

    keep: is called with the record after each round, so that an interruption loses one round
    """
    found: dict[str, dict[str, Any]] = {}
    record = {"batch_size": batch_size, "sentences": len(sources), "load_before": load_average(), "systems": found}
    for system in systems:
        _, figures = system.translate(translator, sources[:batch_size], batch_size)
        found[system.row.name] = {"signature": figures["signature"], "rounds": []}
    for _ in range(rounds):
        for system in systems:
            _, figures = system.translate(translator, sources, batch_size)
            kept = {name: figures[name] for name in ("tokens", "seconds", "stage_seconds", "searches")}
            found[system.row.name]["rounds"].append(kept)
        keep(record)
    return record
