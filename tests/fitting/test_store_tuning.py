"""What shorter keys and a faster search cost in likelihood."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from knnmt.compression.pca import fit, reduce
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.fitting import store_tuning
from knnmt.fitting.development import search_text
from knnmt.fitting.store_tuning import dimension_trade_offs, search_trade_offs
from knnmt.fitting.tuning import best_of_fixed
from knnmt.index.saved import build_index
from knnmt.retrieval.open_store import OpenStore
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip

PAIRS = some_pairs(12, start=301)


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(200), tiny)


def test_losses_of_shorter_keys_are_those_of_reduced_stores(
    tiny: TransformerEngine, made: Datastore, tmp_path: Path
) -> None:
    opened = OpenStore(made)
    development = search_text(tiny, opened, PAIRS)
    offs = list(dimension_trade_offs(opened.index.entries, development, 8, (2, 6, 16, 32, 64)))
    assert [each.dim for each in offs] == [2, 6, 16]
    assert offs[0].loss > offs[1].loss > offs[2].loss  # what two dimensions forget is plain
    whole = best_of_fixed(development.positions().first(8))[0]
    for each in offs:
        assert each.variance == pytest.approx(float(fit(made, each.dim).explained_variance.sum()), rel=1e-4)
        short, _ = reduce(made, tmp_path / str(each.dim), each.dim)
        there = best_of_fixed(search_text(tiny, OpenStore(short), PAIRS).positions().first(8))[0]
        assert each.loss == pytest.approx(there - whole, abs=0.03)  # keys of half precision differ a little


def test_a_sample_of_entries_and_positions_is_enough(
    tiny: TransformerEngine, made: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_tuning, "SAMPLED_ENTRIES", 500)
    monkeypatch.setattr(store_tuning, "SAMPLED_POSITIONS", 40)
    opened = OpenStore(made)
    development = search_text(tiny, opened, PAIRS)
    first, second = (list(dimension_trade_offs(opened.index.entries, development, 8, (4,))) for _ in range(2))
    assert first == second
    assert len(development) > 40


def test_a_store_without_index_has_nothing_to_trade(tiny: TransformerEngine, made: Datastore) -> None:
    opened = OpenStore(made)
    assert list(search_trade_offs(opened, search_text(tiny, opened, PAIRS), RetrievalConfig(8, 0.5, 30.0))) == []


def test_more_probes_lose_less_and_the_index_stays_as_it_was(
    tiny: TransformerEngine, made: Datastore, tmp_path: Path
) -> None:
    faiss_or_skip()
    store = Datastore.open(shutil.copytree(made.path, tmp_path / "s"))
    build_index(store, "ivf-flat")
    opened = OpenStore(store)
    index = opened.index.approximate
    assert index is not None
    before = index.settings
    offs = list(search_trade_offs(opened, search_text(tiny, opened, PAIRS), RetrievalConfig(8, 0.5, 30.0)))
    assert index.settings == before
    assert [each.settings.probes for each in offs] == [before.probes * part // 4 for part in (1, 2, 4, 8, 16)]
    assert offs[0].fidelity.recall <= offs[-1].fidelity.recall == 1
    assert offs[-1].loss == pytest.approx(0, abs=1e-4)  # every list was looked into


def test_what_is_judged_as_the_indexs_own_settings_are_all_of_them(
    tiny: TransformerEngine, made: Datastore, tmp_path: Path
) -> None:
    faiss_or_skip()
    store = Datastore.open(shutil.copytree(made.path, tmp_path / "s"))
    build_index(store, "pq4")
    opened = OpenStore(store)
    index = opened.index.approximate
    assert index is not None
    assert index.settings.reach  # the setting that is easily forgotten
    offs = list(search_trade_offs(opened, search_text(tiny, opened, PAIRS), RetrievalConfig(8, 0.5, 30.0)))
    assert offs[2].settings == index.settings
    assert all(each.settings.reach >= index.settings.reach for each in offs)
