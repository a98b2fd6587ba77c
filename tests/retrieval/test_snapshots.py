"""A batch keeps the state of its store that it began with, whatever another thread does to the store meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.config import CacheConfig, FastConfig, RetrievalConfig
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import search
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.kinds import SearchSettings
from knnmt.index.saved import build_index
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.translator.evidence import evidence_of
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip
from support.loops import graph_search, reference_search

PLAIN = RetrievalConfig(k=6, interpolation_weight=0.7, temperature=4.0)
CONFIGS = {
    "plain": PLAIN,
    "cache": replace(PLAIN, cache=CacheConfig(2.0)),
    "fast": replace(PLAIN, fast=FastConfig(30), temperature=0.05),
}
TEXTS = ["Satz 7 ja", "Ein Satz", "Noch ein Satz 19 ja ja", "Nein"]
CHANGED_AT = 3  # a step in the middle


@pytest.fixture(scope="module")
def built(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshots") / "store"
    store = Datastore.build(path, some_pairs(60), tiny, BuildConfig(for_fast=True))
    store.add(some_pairs(6, "more.tsv", 70), tiny)
    return path


@pytest.fixture
def opened(built: Path, tmp_path: Path) -> OpenStore:
    return OpenStore(Datastore.open(shutil.copytree(built, tmp_path / "store")))


def first_ones(pair: Any) -> bool:
    return int(pair.origin.partition("#")[2]) < 55


def grow(store: Datastore, engine: TransformerEngine) -> None:
    store.add(some_pairs(80, "new.tsv", 300), engine)


def shrink(store: Datastore, engine: TransformerEngine) -> None:
    store.remove(first_ones)
    store.compact()


def decoded(
    engine: TransformerEngine, batch: BatchRetrieval, loop: Callable[..., list[list[Hypothesis]]]
) -> Sequence[tuple[tuple[int, ...], float]]:
    config = replace(engine.generation, beam=3, max_tokens=20)
    found = loop(engine, engine.tokenizer.encode_sources(TEXTS), config, batch)
    return [(best[0].tokens, round(best[0].score, 4)) for best in found]


@pytest.mark.parametrize("change", [grow, shrink])
@pytest.mark.parametrize(
    ("how", "loop", "record"),
    [
        *((how, reference_search, record) for how in CONFIGS for record in (False, True)),
        ("plain", graph_search, False),
    ],
)
def test_a_batch_goes_on_with_the_store_that_it_began_with(
    opened: OpenStore,
    tiny: TransformerEngine,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    loop: Callable[..., list[list[Hypothesis]]],
    record: bool,
    change: Callable[[Datastore, TransformerEngine], None],
) -> None:
    retrieval = Retrieval(opened, CONFIGS[how])
    expected = decoded(tiny, BatchRetrieval([retrieval] * len(TEXTS), record=record), loop)
    batch = BatchRetrieval([retrieval] * len(TEXTS), record=record)
    steps = 0
    log_probabilities = TransformerEngine.log_probabilities

    def changing(engine: TransformerEngine, *states: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == CHANGED_AT:
            change(Datastore.open(opened.datastore.path), tiny)
            assert opened.refresh()
        return log_probabilities(engine, *states)

    monkeypatch.setattr(TransformerEngine, "log_probabilities", changing)
    assert decoded(tiny, batch, loop) == expected
    assert steps > CHANGED_AT
    monkeypatch.undo()
    assert decoded(tiny, BatchRetrieval([retrieval] * len(TEXTS), record=record), loop) != expected


def test_evidence_names_the_sentences_that_were_found(opened: OpenStore, tiny: TransformerEngine) -> None:
    config = replace(tiny.generation, beam=3, max_tokens=20)

    def evidence(change: Callable[[Datastore, TransformerEngine], None] | None) -> list[list[Any]]:
        batch = BatchRetrieval([Retrieval(opened, PLAIN)] * len(TEXTS), record=True)
        found = search(tiny, tiny.tokenizer.encode_sources(TEXTS), config, batch)
        if change is not None:
            change(Datastore.open(opened.datastore.path), tiny)
            opened.refresh()
        assert batch.evidence is not None
        snapshot = batch.snapshots[0]
        assert snapshot is not None
        return [evidence_of(best[0], batch.evidence, snapshot, tiny.tokenizer) for best in found]

    assert evidence(None) == evidence(shrink)


def test_an_index_snapshot_does_not_follow_the_store(opened: OpenStore, tiny: TransformerEngine) -> None:
    """Neither entries that go, nor settings of the index that change, nor an index of more entries."""
    faiss_or_skip()
    store = Datastore.open(opened.datastore.path)
    build_index(store, "ivf-flat", SearchSettings(probes=500, candidates=8))
    index = StoreIndex(Datastore.open(store.path))
    before = index.snapshot
    keys = torch.from_numpy(before.entries.keys_of(np.arange(0, 40, 5))).float()

    def found() -> list[list[int]]:
        return before.search(keys, 12)[1].tolist()

    expected, description = found(), before.description
    build_index(store, "ivf-flat", SearchSettings(probes=1, candidates=0))
    assert index.refresh()
    store.remove(first_ones)
    assert index.refresh()
    assert (found(), before.description) == (expected, description)
    store.compact()
    build_index(store, "ivf-flat", SearchSettings(probes=500, candidates=8))
    assert index.refresh()
    assert (found(), before.description) == (expected, description)
    assert index.search(keys, 12)[1].tolist() != expected
