"""Training combiners on kept rows: what is kept is what a step sees, and what is learnt."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from knnmt.config import Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.forced import force_text
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.step import SentenceSoFar, Step
from knnmt.retrieval.trained.networks import network_named
from knnmt.retrieval.trained.seen import SeenInStep, distinct_counts
from knnmt_lab.combiner_rows import CombinerRows, collect_rows
from knnmt_lab.combiner_training import (
    KEY_NOISE,
    CombinerConfig,
    Judged,
    best_fading,
    combiner_losses,
    disturbed,
    train_combiner,
    trained_loss,
)
from support.datastore_pairs import some_pairs
from support.random_combiners import METHODS

CONFIG = RetrievalConfig(4, 0.5, 3.0)


@pytest.fixture(scope="module")
def opened(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
    return OpenStore(Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(60), tiny))


@pytest.fixture(scope="module")
def rows(tiny: TransformerEngine, opened: OpenStore) -> CombinerRows:
    return collect_rows(tiny, opened, some_pairs(30, start=200), 6, None)


@pytest.mark.parametrize("segments", [None, 5])
@pytest.mark.parametrize("method", METHODS)
def test_kept_rows_are_what_a_step_sees(
    tiny: TransformerEngine, opened: OpenStore, method: str, segments: int | None
) -> None:
    """A network says the same of both, and a loss is the mixture's probability of the token."""
    pairs = some_pairs(4, start=300)
    kept = collect_rows(tiny, opened, pairs, 4, segments)
    torch.manual_seed(0)
    network = network_named(method)(4, opened.datastore.manifest.dim).eval()
    network.fit_inputs(kept, 3.0)
    network.take_fading(Fading(4.0, 1.0, 5.0, 1.0))
    forced = force_text(tiny, pairs)
    scores = tiny.log_probabilities(forced.representations)
    with torch.no_grad():
        weights, logits = network(kept)
        losses = combiner_losses(network, kept)
    numbers = torch.arange(len(kept))
    means: list[float] = []  # of the nearest distances of each sentence so far
    steps: list[int] = []
    for sentence in range(kept.pairs):
        nearest = kept.distances_sq[kept.sentences == sentence, 0].sqrt().tolist()
        steps += range(1, len(nearest) + 1)
        means += [sum(nearest[:step]) / step for step in range(1, len(nearest) + 1)]
    so_far = SentenceSoFar(torch.tensor(means), torch.tensor(steps).float())
    step = Step(
        opened.snapshot, CONFIG, forced.representations, forced.representations, so_far, scores, numbers[:, None]
    )
    neighbours = Neighbours(kept.distances_sq, kept.tokens.clamp(min=0), kept.ids)
    with torch.no_grad():
        in_step = network(SeenInStep(step, neighbours, 4))
    np.testing.assert_allclose(in_step[0].exp(), weights.exp(), atol=1e-5)
    np.testing.assert_allclose(in_step[1], logits, atol=1e-4)
    for row in range(len(kept)):
        target = int(forced.targets[row])
        knn = sum(
            math.exp(weight)
            for weight, token in zip(weights[row].tolist(), kept.tokens[row].tolist(), strict=True)
            if token == target
        )
        share = 1 / (1 + math.exp(-float(logits[row])))
        mixed = share * knn + (1 - share) * math.exp(float(scores[row, target]))
        assert float(losses[row]) == pytest.approx(-math.log(mixed), abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_training_learns_and_keeps_the_best(opened: OpenStore, rows: CombinerRows, method: str) -> None:
    heard: list[Judged] = []
    few = CombinerConfig(method, updates=60, judged_every=10, sentences=8)
    found = train_combiner(opened, rows, rows, CONFIG, best_fading(rows, None), few, heard.append)
    assert [each.updates for each in heard] == [10, 20, 30, 40, 50, 60]
    best = min(each.validation for each in heard)
    assert heard[-1].validation < heard[0].validation
    assert trained_loss(found.combiner.network, rows.first(4)) == pytest.approx(best, abs=1e-6)
    losses = found.losses(rows)
    assert losses["trained"] == pytest.approx(best, abs=1e-6)
    assert losses["trained"] < losses["alone"]
    assert found.combiner.record.losses == losses
    assert found.combiner.record.k == 4


def test_rows_with_their_keys_are_the_same(rows: CombinerRows) -> None:
    few = rows.first(4)
    missing = few.ids.clone()
    missing[3, 2:] = -1
    few = replace(few, ids=missing)
    kept = few.with_keys_on(torch.device("cpu"))
    assert kept.own_keys is not None
    assert len(kept.own_keys) < few.ids.numel()
    some = torch.tensor([5, 3, 8])
    for one, other in ((kept, few), (kept[some], few[some]), (kept.first(2), few.first(2))):
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.tokens, other.tokens)
    assert bool((kept.keys[3, 2:] == 0).all())


def test_a_seed_trains_the_same(opened: OpenStore, rows: CombinerRows) -> None:
    few = CombinerConfig("robust", updates=5, judged_every=5)
    first, again, other = (
        train_combiner(opened, rows, rows, CONFIG, CONFIG, replace(few, seed=seed)).combiner.signature()
        for seed in (3, 3, 4)
    )
    assert first == again != other


def test_small_networks_are_trained_with_one_thread(opened: OpenStore, rows: CombinerRows) -> None:
    few, before = CombinerConfig("robust", updates=2, judged_every=1), torch.get_num_threads()
    seen: list[int] = []
    torch.set_num_threads(2)
    try:
        train_combiner(opened, rows, rows, CONFIG, CONFIG, few, lambda _: seen.append(torch.get_num_threads()))
        assert seen == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_noise_of_robust(rows: CombinerRows) -> None:
    torch.manual_seed(0)
    few = rows.first(4)
    none_right = ~few.matches.any(1)
    assert 0 < int(none_right.sum()) < len(few)
    told = disturbed(few, 32, 1.0)
    assert bool(told.matches.any(1).all())
    assert torch.equal(told.tokens[none_right, 0], few.targets[none_right])
    assert torch.equal(told.tokens[none_right, 1:], few.tokens[none_right, :-1])
    assert torch.equal(told.said_here[none_right, 0], few.base[none_right])
    assert told.distances_sq[none_right, 0].tolist() == pytest.approx([KEY_NOISE**2 * 32] * int(none_right.sum()))
    calm = disturbed(few, 32, 0.0)
    assert torch.equal(calm.tokens, few.tokens)
    for some in (few, told, calm):
        assert torch.equal(some.distinct, distinct_counts(some.tokens, some.distances_sq.isinf()))
    # Noise on keys, made slowly, is as far from them on average and by its spread.
    place = int(few.distances_sq[:, 3].argmax())
    query, key = few.queries[place], few.keys[place, 3]
    slow = torch.stack([(query - key - KEY_NOISE * torch.randn(32)).square().sum() for _ in range(4000)])
    fast = torch.stack([disturbed(few[torch.tensor([place])], 32, 0.0).distances_sq[0, 3] for _ in range(4000)])
    assert float(fast.mean()) == pytest.approx(float(slow.mean()), rel=0.002)
    assert float(fast.std()) == pytest.approx(float(slow.std()), rel=0.1)


def test_noise_makes_nothing_of_missing_neighbours(rows: CombinerRows) -> None:
    few = rows.first(4)
    missing = torch.zeros_like(few.tokens, dtype=torch.bool)
    missing[::3, 2:] = True
    tokens = few.tokens.masked_fill(missing, -1)
    few = replace(
        few,
        distances_sq=few.distances_sq.masked_fill(missing, math.inf),
        tokens=tokens,
        distinct=distinct_counts(tokens, missing),
    )
    torch.manual_seed(0)
    for _ in range(20):
        noisy = disturbed(few, 32, 0.5)
        assert not bool(noisy.distances_sq.isnan().any())
        assert torch.equal(noisy.distances_sq.isinf(), noisy.tokens == -1)
        assert torch.equal(noisy.distinct, distinct_counts(noisy.tokens, noisy.distances_sq.isinf()))


def test_other_methods_are_named() -> None:
    with pytest.raises(
        SettingError, match="--method must be robust or robust-fading, or name your own: there is no method 'colour'"
    ):
        CombinerConfig("colour")
