"""Steps in compiled code beside the same steps without it, which `test_retriever.py` holds against the equations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, Fading, RetrievalConfig
from knnmt.errors import DatastoreDamagedError
from knnmt.native import library
from knnmt.retrieval.combiner import DistanceCombiner
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.plain import PlainSteps
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from support.made_stores import VOCABULARY, made_store, plain_search, random_keys, random_values

if library() is None:
    pytest.skip("nothing was compiled: no C++ compiler", allow_module_level=True)
DIM = 70  # more than the cache looks at first
FADING = Fading(scale=11.0, width=2.0, sentence_scale=11.5, sentence_width=1.0)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[OpenStore]:
    """A plain one, a reduced one, one that was pruned, and one with fewer entries than k."""
    path = tmp_path_factory.mktemp("stores")
    plain = made_store(path / "plain", random_keys(300, DIM), random_values(300, kinds=20))
    reduced, _ = reduce(plain, path / "reduced", 20)
    pruned = prune(plain, path / "pruned", plain_search(plain), k=5)
    few = made_store(path / "few", random_keys(3, DIM, 2), [30, 0, 31])
    return [OpenStore(each) for each in (plain, reduced, pruned, few)]


caches = st.none() | st.builds(
    CacheConfig,
    threshold=st.sampled_from([0.0, 3.0, 6.0]),
    scope=st.sampled_from(["sentence", "batch"]),
    keep_hits=st.booleans(),
    capacity=st.sampled_from([1, 4, 50, 4096]),
)
configs = st.builds(
    RetrievalConfig,
    k=st.sampled_from([1, 4, 9]),
    interpolation_weight=st.sampled_from([0.0, 0.4, 0.99]),
    temperature=st.sampled_from([1e-4, 10.0, 1e6]),
    fading=st.sampled_from([None, FADING]),
    use_counts=st.booleans(),
    cache=caches,
)


# Always the same ones: of two cached states at distances that differ by rounding, either may be taken over.
@settings(derandomize=True)
@example(which=0, config=RetrievalConfig(4, 0.4, 1e6, FADING), sentences=1, width=3, spread=1e4, seed=1)  # a tiny λ
@given(
    which=st.integers(0, 3),
    config=configs,
    sentences=st.integers(1, 4),
    width=st.integers(1, 4),
    spread=st.sampled_from([0.0, 0.3, 1e4]),
    seed=st.integers(0, 99),
)
def test_compiled_steps_are_the_same_steps(
    stores: list[OpenStore],
    which: int,
    config: RetrievalConfig,
    sentences: int,
    width: int,
    spread: float,
    seed: int,
) -> None:
    chance = np.random.default_rng(seed)
    retrieval = Retrieval(stores[which], config)
    kept = [Statistics(hit_distances=Counter()) for _ in range(2)]
    compiled, plain = (BatchRetrieval([retrieval] * sentences, statistics) for statistics in kept)
    assert isinstance(compiled.stepwise, CompiledSteps)
    plain.stepwise = PlainSteps(plain.groups, sentences, plain.statistics, None)
    starts = random_keys(300, DIM)[chance.integers(300, size=(sentences, 1))]
    for step in range(5):
        moved = starts + spread * chance.normal(size=(sentences, width, DIM))
        states = torch.from_numpy(moved.astype(np.float32))
        base = torch.from_numpy(chance.normal(size=(sentences, width, VOCABULARY)).astype(np.float32)).log_softmax(-1)
        base[0, 0, chance.integers(VOCABULARY)] = float("-inf")
        scores = base.clone(), base.clone()
        history = torch.zeros((sentences, width, step), dtype=torch.long)
        offsets = [each.mix(states, mine, history) for each, mine in zip((compiled, plain), scores, strict=True)]
        torch.testing.assert_close(offsets[0], offsets[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-5)
        if sentences > 1 and step == 2:
            left = [sentences - 1, *range(sentences - 2)]
            sentences, starts = len(left), starts[left]
            for each in (compiled, plain):
                each.keep(left)
    assert replace(kept[0]) == replace(kept[1])


def test_what_needs_more_is_not_compiled(stores: list[OpenStore]) -> None:
    config = RetrievalConfig(4, 0.5, 10.0)
    one, other = Retrieval(stores[0], config), Retrieval(stores[1], config)
    assert isinstance(BatchRetrieval([one, one]).stepwise, CompiledSteps)
    for sentences in ([one, other], [one, None], [Retrieval(stores[0], replace(config, k=257))]):
        assert isinstance(BatchRetrieval(sentences).stepwise, PlainSteps)
    assert isinstance(BatchRetrieval([one], record=True).stepwise, PlainSteps)
    gated = Retrieval(stores[0], config, gate=lambda step: (torch.ones(len(step), dtype=torch.bool), None))
    combined = Retrieval(stores[0], config, combiner=DistanceCombiner(config, 1.0))
    for own in (gated, combined):
        assert isinstance(BatchRetrieval([own]).stepwise, PlainSteps)


def a_step(store: OpenStore, states: torch.Tensor, vocabulary: int = VOCABULARY) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities before and after a compiled step of one sentence, what is added to whole rows counted."""
    batch = BatchRetrieval([Retrieval(store, RetrievalConfig(4, 0.5, 10.0, FADING))])
    assert isinstance(batch.stepwise, CompiledSteps)
    before = torch.zeros((1, len(states), vocabulary)).log_softmax(-1)
    after = before.clone()
    offsets = batch.mix(states[None], after, torch.zeros((1, len(states), 0), dtype=torch.long))
    return before[0], after[0] + offsets[0, :, None]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 3e38, -1e25])
def test_a_state_that_overflowed_finds_nothing_and_harms_no_other(stores: list[OpenStore], number: float) -> None:
    states = torch.from_numpy(random_keys(2, DIM))
    states[0, 3] = number
    before, after = a_step(stores[0], states)
    assert torch.equal(before[0], after[0])
    torch.testing.assert_close(after[1], a_step(stores[0], states[1:])[1][0])


def test_tokens_and_entries_that_there_are_not_are_refused(stores: list[OpenStore], tmp_path: Path) -> None:
    states = torch.from_numpy(random_keys(2, DIM))
    store = OpenStore(made_store(tmp_path / "s", random_keys(30, DIM), random_values(30, kinds=20)))
    a_step(store, states)
    with pytest.raises(DatastoreDamagedError, match="not one of the model's 1,"):
        a_step(store, states, vocabulary=1)
    store.values[7] = -1
    with pytest.raises(DatastoreDamagedError, match="knnmt verify"):
        a_step(store, torch.from_numpy(random_keys(30, DIM)))
    vars(store.snapshot)["values"] = store.values[:1]
    with pytest.raises(DatastoreDamagedError, match="names entries that it does not have"):
        a_step(store, states)
