"""Trained combiners in compiled code, beside PyTorch, which `test_trained_combiners.py` holds against the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.search import search
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.store_index import StoreIndex
from knnmt.native import library, load
from knnmt.retrieval import compiled
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.plain import PlainSteps
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from support.datastore_pairs import some_pairs
from support.loops import reference_search
from support.native_builds import vector_builds_that_run
from support.random_combiners import KERNEL, META_K, random_combiner

if library() is None:
    pytest.skip("nothing was compiled: no C++ compiler", allow_module_level=True)
METHODS = ("robust", "robust-fading")
VOCABULARY = 231


@pytest.fixture(scope="module")
def stores(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> list[OpenStore]:
    """A plain one, one that repeats itself, a reduced one, one that was pruned, and one with fewer entries than k."""
    path = tmp_path_factory.mktemp("stores")
    plain = Datastore.build(path / "plain", some_pairs(40), tiny)
    again = Datastore.build(path / "again", [*some_pairs(20), *some_pairs(6)], tiny)
    reduced, _ = reduce(plain, path / "reduced", 12)
    pruned = prune(plain, path / "pruned", StoreIndex(plain).search, k=5)
    few = Datastore.build(path / "few", some_pairs(1), tiny)
    return [OpenStore(each, exact=True) for each in (plain, again, reduced, pruned, few)]


def in_pytorch(batch: BatchRetrieval) -> BatchRetrieval:
    """The same batch without compiled code."""
    batch.stepwise = PlainSteps(batch.groups, len(batch.snapshots), batch.statistics, None)
    return batch


def assert_same_steps(
    retrieval: Retrieval, sentences: int, width: int, spread: float, seed: int, vocabulary: int = VOCABULARY
) -> None:
    """Five steps of a batch give the same scores in compiled code as in PyTorch."""
    fast, slow = (BatchRetrieval([retrieval] * sentences) for _ in range(2))
    assert isinstance(fast.stepwise, CompiledSteps)
    in_pytorch(slow)
    chance = np.random.default_rng(seed)
    entries, store = retrieval.store.index.entries, retrieval.store
    whole = store.datastore.projection is not None
    dim = 32 if whole else entries.dim
    keys = np.zeros((1, dim)) if whole else entries.keys_of(np.arange(entries.entries)).astype(np.float64)
    for step in range(5):
        near = keys[chance.integers(len(keys), size=(sentences, width))]
        states = torch.from_numpy((near + spread * chance.normal(size=near.shape)).astype(np.float32))
        wild = 3 * chance.normal(size=(sentences, width, vocabulary))
        base = torch.from_numpy(wild.astype(np.float32)).log_softmax(-1)
        base[0, 0, chance.integers(vocabulary, size=20)] = float("-inf")
        scores = base.clone(), base.clone()
        history = torch.zeros((sentences, width, step), dtype=torch.long)
        offsets = [each.mix(states, mine, history) for each, mine in zip((fast, slow), scores, strict=True)]
        found = [(mine + offset[:, :, None]).exp() for mine, offset in zip(scores, offsets, strict=True)]
        torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-6)
        assert spread > 1 or float((found[0] - base.exp()).abs().max()) > 1e-3
        if sentences > 1 and step == 2:
            left = [sentences - 1, *range(sentences - 2)]
            sentences = len(left)
            for each in (fast, slow):
                each.keep(left)


@settings(derandomize=True, max_examples=40)
@example(which=0, method="robust-fading", k=64, sentences=2, width=3, spread=0.5, cache=None, seed=0)
@given(
    which=st.integers(0, 4),
    method=st.sampled_from(METHODS),
    k=st.sampled_from([1, 3, 8, 17, 32]),
    sentences=st.integers(1, 4),
    width=st.integers(1, 4),
    spread=st.sampled_from([0.05, 0.5, 3.0]),
    cache=st.sampled_from([None, CacheConfig(0.0)]),
    seed=st.integers(0, 99),
)
def test_compiled_networks_are_those_of_pytorch(
    stores: list[OpenStore],
    which: int,
    method: str,
    k: int,
    sentences: int,
    width: int,
    spread: float,
    cache: CacheConfig | None,
    seed: int,
) -> None:
    store = stores[which]
    combiner = random_combiner(store.datastore, method, k, seed)
    retrieval = Retrieval(store, RetrievalConfig(k, 0.5, 6.0, cache=cache), combiner=combiner)
    assert_same_steps(retrieval, sentences, width, spread, seed)


@pytest.mark.parametrize("build", vector_builds_that_run())
@pytest.mark.parametrize("vocabulary", [231, 236, 300])
def test_every_build_has_the_same_network(
    stores: list[OpenStore], build: str, vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a vocabulary that is no multiple of a vector."""
    monkeypatch.setattr(compiled, "library", lambda: load(build))
    store = stores[1]
    retrieval = Retrieval(
        store, RetrievalConfig(32, 0.5, 6.0), combiner=random_combiner(store.datastore, "robust-fading", 32, 5)
    )
    assert_same_steps(retrieval, 3, 2, 0.4, 7, vocabulary)


def beams(engine: TransformerEngine, retrieval: Retrieval, plain: bool) -> Sequence[tuple[tuple[int, ...], float]]:
    sources = engine.tokenizer.encode_sources(["Satz 3 ja ja", "Satz 12", "anders", "Satz 20 ja"])
    config = replace(engine.generation, beam=3, n_best=2, max_tokens=20)
    batch = BatchRetrieval([retrieval] * len(sources))
    found = (
        reference_search(engine, sources, config, in_pytorch(batch))
        if plain
        else search(engine, sources, config, batch)
    )
    return [(each.tokens, each.score) for every in found for each in every]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("segments", [None, 2, 6])
@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_beams_are_those_of_pytorch(
    tiny: TransformerEngine, stores: list[OpenStore], which: int, segments: int | None, method: str
) -> None:
    store = stores[which]
    config = RetrievalConfig(8, 0.5, 6.0, segments=segments)
    retrieval = Retrieval(store, config, combiner=random_combiner(store.datastore, method, 8, 3, segments))
    fast, slow = (beams(tiny, retrieval, plain) for plain in (False, True))
    assert [tokens for tokens, _ in fast] == [tokens for tokens, _ in slow]
    assert [score for _, score in fast] == pytest.approx([score for _, score in slow], abs=1e-3)


@pytest.mark.parametrize("method", [META_K, KERNEL])
def test_other_methods_are_not_compiled(stores: list[OpenStore], method: str) -> None:
    store = stores[0]
    retrieval = Retrieval(store, RetrievalConfig(8, 0.5, 6.0), combiner=random_combiner(store.datastore, method, 8, 1))
    assert isinstance(BatchRetrieval([retrieval]).stepwise, PlainSteps)


@pytest.mark.parametrize(("k", "trained_with"), [(16, 8), (16, 100)])
def test_a_network_without_room_for_all_neighbours_is_not_compiled(
    stores: list[OpenStore], k: int, trained_with: int
) -> None:
    store = stores[0]
    combiner = random_combiner(store.datastore, "robust", 8, 1)
    combiner.network.k = trained_with
    assert isinstance(
        BatchRetrieval([Retrieval(store, RetrievalConfig(k, 0.5, 6.0), combiner=combiner)]).stepwise, PlainSteps
    )
