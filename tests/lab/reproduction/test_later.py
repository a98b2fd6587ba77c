"""Methods that came after the paper, as rows: trained, put together, and told beside what was published."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from knnmt import Datastore
from knnmt.config import RetrievalConfig
from knnmt.engine.transformer import TransformerEngine
from knnmt.evaluation.scoring import Score, Scores
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.trained.combiner import TrainedCombiner
from knnmt_lab.combiner_training import CombinerConfig
from knnmt_lab.prunings import prune_known
from knnmt_lab.reproduction import later
from knnmt_lab.reproduction.later import (
    PUBLISHED,
    combiner_directory,
    later_table,
    taught_and_validated,
    trained_combiner,
)
from knnmt_lab.reproduction.plan import COMBINERS, all_rows
from knnmt_lab.reproduction.results import Results, RowResult
from knnmt_lab.reproduction.stores import DomainStores
from knnmt_lab.reproduction.tables import NOT_RUN
from knnmt_lab.reproduction.translating import ReadyRow
from support.datastore_pairs import some_pairs


def test_a_row_trains_its_combiner_and_translates_with_it(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "SEEDS", (1, 2))
    monkeypatch.setattr(later, "CombinerConfig", partial(CombinerConfig, updates=3))
    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(20), tiny))
    config = RetrievalConfig(4, 0.5, 3.0)
    record = trained_combiner(tiny, opened, some_pairs(12, start=100), config, "meta-k")
    assert len(record["losses"]) == len(record["updates"]) == 2
    assert record["losses"][0] != record["losses"][1]
    rows = {each.name: each for each in all_rows(32)}
    for seed, name in ((1, "B/meta-k"), (2, "B/meta-k@2")):
        place = combiner_directory(opened.datastore.path, "meta-k", seed)
        trained = TrainedCombiner.read(opened.datastore, COMBINERS["meta-k"][0], place=place)
        assert (trained.record.seed, trained.record.k, trained.record.pairs) == (seed, 8, record["pairs"])
        ready = ReadyRow.of(rows[name], opened, config, None)
        assert ready.retrieval is not None
        assert ready.retrieval.config.k == 8
        assert ready.retrieval.signature().endswith(f"|combiner:{trained.signature()}")


def test_two_forms_of_one_method_are_trained_side_by_side(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "SEEDS", (1,))
    monkeypatch.setattr(later, "CombinerConfig", partial(CombinerConfig, updates=3))
    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(20), tiny))
    config = RetrievalConfig(4, 0.5, 3.0)
    rows = {each.name: each for each in all_rows(32)}
    for name, k in (("robust-fading", 32), ("robust-fading-8", 8)):
        trained_combiner(tiny, opened, some_pairs(12, start=100), config, name)
        ready = ReadyRow.of(rows[f"B/{name}"], opened, config, None)
        assert ready.config is not None
        assert ready.config.k == k
        assert rows[f"B/{name}@3"].combiner == name
    again = ReadyRow.of(rows["B/robust-fading"], opened, config, None).config
    assert again is not None
    assert again.k == 32


def test_text_that_validates_is_not_taught() -> None:
    pairs = some_pairs(later.PAIRS + 200)
    taught, validated = taught_and_validated(pairs)
    assert len(taught) + len(validated) == later.PAIRS
    assert 0.15 < len(validated) / later.PAIRS < 0.25
    assert not {pair.source for pair in taught} & {pair.source for pair in validated}


def test_the_store_of_plac_is_made_with_the_others_from_one_search(tiny: TransformerEngine, tmp_path: Path) -> None:
    stores = DomainStores(tmp_path / "own", exact=frozenset("B"))
    stores.build(some_pairs(20), tiny, ("de", "en"), for_fast=False, progress=lambda _done, _total: None)
    full = Datastore.open(stores.path(()))
    asked: list[int] = []

    def search(queries: Any, k: int) -> Any:
        asked.append(k)
        return StoreIndex(full, exact=True).search(queries, k)

    stores.prune((), ["plac4", "prune1", "surest70"], search)
    assert set(asked) == {5}
    prune_known(full, tmp_path / "alone", StoreIndex(full, exact=True).search, 4)
    alone = Datastore.open(tmp_path / "alone")
    found = Datastore.open(stores.path(("plac4",)))
    assert found.manifest.transforms == alone.manifest.transforms == ("plac:k=4",)
    for one, other in zip(found.segments, alone.segments, strict=True):
        assert np.array_equal(one.arrays["keys"], other.arrays["keys"])
    assert Datastore.open(stores.path(("prune1",))).manifest.transforms == ("prune:k=1,seed=0",)
    surest = Datastore.open(stores.path(("surest70",))).manifest
    assert surest.transforms == ("surest:k=4,keep=0.7",)
    assert surest.live_entries == round(0.7 * full.manifest.live_entries)


def test_gains_stand_beside_those_published() -> None:
    scores = {("a", "B/knn-fixed"): 30.0, ("b", "B/knn-fixed"): 20.0, ("a", "B/robust"): 31.0, ("b", "B/robust"): 22.0}
    scores |= {("a", "sk-mt"): 29.0, ("b", "B/robust@2"): 24.0}
    rows = {
        place: RowResult({}, Scores(Score(value, "", None, None), Score(0.0, "", None, None)), None)
        for place, value in scores.items()
    }
    results = Results(("a", "b"), rows, {}, {}, {}, {})

    def line(name: str) -> list[str]:
        found = [scores.get((domain, name)) for domain in ("a", "b")]
        return [NOT_RUN if each is None else f"{each:.2f}" for each in (*found, None)]

    tables: Any = SimpleNamespace(bleu=line, titled=lambda name: name)
    table = later_table(results, tables)
    assert table is not None
    assert table[1:] == [
        ["B/robust", "31.00", "22.00", NOT_RUN, "+2.00", "+2.09", "knn-box"],
        ["sk-mt", "29.00", NOT_RUN, NOT_RUN, NOT_RUN, "+0.54", "knn-models"],
    ]
    scores.clear()
    assert later_table(results, tables) is None
    assert set(PUBLISHED) <= {row.name for row in all_rows(1024)}
