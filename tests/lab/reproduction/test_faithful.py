"""Probes at equal fidelity: the fewest that are enough, or from which on more gain nothing; searches use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.forced import force_text
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.open_store import OpenStore
from knnmt_lab.reproduction.faithful import PROBES, chosen_probes, probes_for, with_probes
from knnmt_lab.reproduction.stores import DomainStores
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip

faiss_or_skip()


@pytest.mark.parametrize(
    ("variations", "target", "reached", "probes"),
    [
        ((0.5, 0.2, 0.1, 0.05), 0.2, True, 2),
        ((0.5, 0.2, 0.1, 0.05), 0.0, False, 8),
        ((0.5, 0.0705, 0.07, 0.0702), 0.0, False, 2),  # the rest is the error of the codes
        ((0.5, 0.2, 0.1, 0.05), 1.0, True, 1),
    ],
)
def test_the_fewest_probes_that_are_enough(
    variations: tuple[float, ...], target: float, reached: bool, probes: int
) -> None:
    assert chosen_probes(list(zip((1, 2, 4, 8), variations, strict=True)), target) == (reached, probes)


def test_fidelity_is_that_of_distributions_written_out(tmp_path: Path, tiny: TransformerEngine) -> None:
    stores = DomainStores(tmp_path, exact=frozenset("B"))
    stores.build(some_pairs(120), tiny, ("de", "en"), for_fast=False, progress=lambda _done, _total: None)
    for block in "AB":
        stores.index((), block, lambda _done, _total: None)
    published, exact = (OpenStore(Datastore.open(stores.path((), block), tiny), "cpu", block == "B") for block in "AB")
    assert published.snapshot.index.approximate is not None
    config = RetrievalConfig(k=4, interpolation_weight=0.5, temperature=3.0)
    pairs = some_pairs(20, start=500)
    found = probes_for(tiny, published, exact, pairs, config)
    assert found["ours"] == pytest.approx({"recall": 1.0, "variation": 0.0}, abs=1e-6)
    assert [each["probes"] for each in found["grid"]] == list(PROBES)
    queries = force_text(tiny, pairs).representations
    assert found["positions"] == len(queries)
    values = published.snapshot.index.entries.values_of(torch.arange(published.snapshot.size)).tolist()
    variations = []
    searched = with_probes(published, 2).snapshot
    assert searched.index.approximate is not None
    assert searched.index.approximate.settings.probes == 2
    assert searched.number != published.snapshot.number  # steps that were recorded for the one must not serve the other
    assert published.snapshot.index.approximate.settings.probes == 32  # the store itself is as it was
    for query in queries:
        shares: list[dict[int, float]] = []
        for index in (searched.index, exact.snapshot.index):
            distances_sq, ids = (each[0].tolist() for each in index.search(query[None], 4))
            weights = np.exp([-each / 3.0 for each in distances_sq])
            of_tokens: dict[int, float] = {}
            for place, weight in zip(ids, weights / weights.sum(), strict=True):
                of_tokens[values[place]] = of_tokens.get(values[place], 0.0) + float(weight)
            shares.append(of_tokens)
        both = set(shares[0]) | set(shares[1])
        variations.append(sum(abs(shares[0].get(each, 0) - shares[1].get(each, 0)) for each in both) / 2)
    assert found["grid"][1]["variation"] == pytest.approx(float(np.mean(variations)), abs=1e-4)
