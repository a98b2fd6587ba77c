"""How many probes make the published index as close to exact search as ours, to time both at equal fidelity.

IVFPQ does not look at keys again, so a part of its error stays with any number of probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from knnmt import (
    Engine,
    Index,
    OpenStore,
    RetrievalConfig,
    SearchSettings,
    SegmentPair,
    fidelity,
    force_text,
    open_store,
    spread,
)
from knnmt_lab.reproduction.decoded_lists import DecodedLists
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import Lines

PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PAIRS = 20  # whose states are searched
_ROWS = 512
_NO_GAIN = 0.001  # total variation


def probes_for(
    engine: Engine[Any],
    published: OpenStore,
    ours: OpenStore,
    pairs: Sequence[SegmentPair],
    config: RetrievalConfig,
) -> dict[str, Any]:
    """The fewest probes with which `published` is as close to exact search as `ours`, and the fidelity of all tried.

    If no number is enough: the fewest from which on more probes gain nothing. Fidelity is measured by p_kNN with the
    k and T of `config`, at the states of some pairs, which must not be in the store.
    """
    store = published.snapshot
    forced = force_text(engine, spread(pairs, _PAIRS))
    queries = store.project(forced.representations.to(store.device)).cpu()

    def found_by(index: Index) -> tuple[Tensor, Tensor]:
        parts = [index.search(some, config.k) for some in torch.split(queries, _ROWS)]
        return torch.cat([each for each, _ in parts]).cpu(), torch.cat([each for _, each in parts]).cpu()

    true = found_by(open_store(store.datastore, exact=True).snapshot.index)

    def measured(opened: OpenStore) -> dict[str, float]:
        found = found_by(opened.snapshot.index)
        return asdict(fidelity(queries, found, true, store.index.entries, config.squared_temperature))

    target = measured(ours)
    tried = [(probes, measured(with_probes(published, probes))) for probes in PROBES]
    reached, probes = chosen_probes([(probes, each["variation"]) for probes, each in tried], target["variation"])
    grid = [{"probes": probes, **each} for probes, each in tried]
    return {"probes": probes, "reached": reached, "ours": target, "positions": len(true[0]), "grid": grid}


def chosen_probes(tried: Sequence[tuple[int, float]], target: float) -> tuple[bool, int]:
    """Whether a number of probes reaches a total variation, and the fewest that do, or else that more hardly improve.

    tried: rising numbers of probes, each with its total variation
    """
    enough = [probes for probes, variation in tried if variation <= target]
    least = min(variation for _, variation in tried)
    return bool(enough), next(iter(enough), None) or next(
        probes for probes, variation in tried if variation <= least + _NO_GAIN
    )


def with_probes(opened: OpenStore, probes: int) -> OpenStore:
    """A store, searched with another number of probes."""
    index = opened.snapshot.index
    if index.own is not None and isinstance(index.own[0], DecodedLists):
        lists = index.own[0].with_probes(probes)
        return opened.searched_by(lists, lists.signature)
    if index.approximate is None:  # a store with too few entries for an index is searched exactly
        return opened
    return opened.with_settings(SearchSettings(probes, index.approximate.settings.candidates))


def probes_table(results: Results) -> Lines:
    """For each domain, the fidelity of our search and of IVFPQ with each number of probes; the chosen one is bold."""
    lines = [["", "ours", *map(str, PROBES)]]
    for domain in results.domains:
        if (record := results.probes.get(domain)) is not None:
            grid = {each["probes"]: _told(each) for each in record["grid"]}
            grid[record["probes"]] = f"**{grid[record['probes']]}**"
            lines.append([domain, _told(record["ours"]), *(grid.get(each, "") for each in PROBES)])
    return lines


def _told(measured: dict[str, float]) -> str:
    return f"{measured['variation']:.4f} ({measured['recall']:.3f})"
