"""λ fixed and fading, counts, and the running means of sentences, beside loops over rows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.compression.pruning import prune
from knnmt.config import Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.distribution import token_log_probabilities
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.step import SentenceSoFar
from support.made_stores import made_store, plain_search

INFINITE = float("inf")
SAME = 0.5  # the distance of the same state
CONFIG = RetrievalConfig(k=3, interpolation_weight=0.6, temperature=5.0)
FADING = Fading(scale=3.0, width=0.5, sentence_scale=4.0, sentence_width=0.7)
NOTHING_KNOWN = SentenceSoFar(torch.ones(3), torch.ones(3))


def found(distances_sq: list[list[float]]) -> Neighbours:
    numbers = torch.tensor(distances_sq)
    ids = torch.arange(numbers.numel()).view_as(numbers).masked_fill(numbers.isinf(), -1)
    return Neighbours(numbers, ids.clamp(min=0), ids)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_fixed_weight_is_that_of_every_row_with_neighbours() -> None:
    neighbours = found([[1, 2, 3], [0, 9, INFINITE], [INFINITE] * 3])
    weights, log_lambda = DistanceCombiner(CONFIG, SAME).weigh(neighbours, None, NOTHING_KNOWN)
    assert log_lambda.exp().tolist() == pytest.approx([0.6, 0.6, 0])
    shares = np.exp(-np.array([1, 2, 3]) / 5)
    np.testing.assert_allclose(weights[0].exp(), shares / shares.sum(), rtol=1e-5)
    assert weights[2].tolist() == [-INFINITE] * 3


def test_no_weight_is_no_weight_with_fading_too() -> None:
    for config in (replace(CONFIG, interpolation_weight=0.0), replace(CONFIG, interpolation_weight=0.0, fading=FADING)):
        log_lambda = DistanceCombiner(config, SAME).weigh(found([[1.0], [0.0], [INFINITE]]), None, NOTHING_KNOWN)[1]
        assert log_lambda.tolist() == [-INFINITE] * 3


@given(st.lists(st.tuples(st.floats(0, 8), st.floats(0, 8), st.integers(1, 60)), min_size=1, max_size=6))
def test_fading_is_the_formula_of_its_config(rows: list[tuple[float, float, int]]) -> None:
    step, mean, steps = (torch.tensor([row[i] for row in rows], dtype=torch.float32) for i in range(3))
    neighbours = found([[float(distance)] for distance in step.square()])
    config = replace(CONFIG, fading=FADING)
    log_lambda = DistanceCombiner(config, SAME).weigh(neighbours, None, SentenceSoFar(mean, steps))[1]
    faded = [
        0.6 * sigmoid((3.0 - d) / 0.5) * sigmoid((4.0 - m) / 0.7) * (1 - min(1, d / 3.0) / (t + 1))
        for d, m, t in zip(step.tolist(), mean.tolist(), steps.tolist(), strict=True)
    ]
    same = [math.exp(-((d / SAME) ** 4)) for d in step.tolist()]
    expected = [each + (1 - each) * 0.99 * mine for each, mine in zip(faded, same, strict=True)]
    assert log_lambda.exp().tolist() == pytest.approx(expected, rel=1e-4)


def test_an_entry_of_the_same_state_outweighs_all_that_are_near_it() -> None:
    """Although T would have eight neighbours weigh nearly the same, and the sentence is far from all the rest."""
    neighbours = found([[0.001, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]])
    config = replace(CONFIG, k=8, temperature=1000.0, fading=FADING)
    far = SentenceSoFar(torch.tensor([100.0]), torch.ones(1))
    weights, log_lambda = DistanceCombiner(config, SAME).weigh(neighbours, None, far)
    assert float(log_lambda.exp()) == pytest.approx(0.99, abs=1e-4)
    assert float(weights[0, 0].exp()) > 0.99
    fixed, _ = DistanceCombiner(replace(config, fading=None), SAME).weigh(neighbours, None, far)
    assert float(fixed[0, 0].exp()) == pytest.approx(1 / 8, abs=1e-3)  # equation 2, as it stands


def test_a_state_that_is_only_near_is_weighed_as_ever() -> None:
    neighbours = found([[4 * SAME**2, 5 * SAME**2]])
    config = replace(CONFIG, fading=FADING)
    one = SentenceSoFar(torch.ones(1), torch.ones(1))
    usual = DistanceCombiner(replace(config, fading=None), SAME).weigh(neighbours, None, one)[0]
    assert DistanceCombiner(config, SAME).weigh(neighbours, None, one)[0].tolist()[0] == pytest.approx(
        usual.tolist()[0]
    )


def test_fading_at_any_distance_is_a_number() -> None:
    config = replace(CONFIG, fading=FADING)
    neighbours = found([[0.0], [1e38], [INFINITE]])
    log_lambda = DistanceCombiner(config, SAME).weigh(
        neighbours, None, SentenceSoFar(torch.tensor([0, 1e19, 1e19]), torch.ones(3))
    )
    assert not log_lambda[1].isnan().any()
    assert log_lambda[1].exp()[1:].tolist() == [0, 0]


def knn_distribution(store: Datastore, query: Tensor, config: RetrievalConfig) -> dict[int, float]:
    opened = OpenStore(store)
    neighbours = opened.search(query, config.k)
    weights, _ = DistanceCombiner(config, SAME).weigh(
        neighbours, opened.counts(neighbours.ids, config.use_counts), NOTHING_KNOWN
    )
    log_p_knn = token_log_probabilities(neighbours.tokens, weights)
    pairs = zip(neighbours.tokens[0].tolist(), log_p_knn[0].exp().tolist(), neighbours.ids[0].tolist(), strict=True)
    return {token: p for token, p, entry in pairs if entry >= 0}


def test_a_merged_entry_weighs_as_much_as_those_it_stands_for(tmp_path: Path) -> None:
    keys = np.array([[0, 0], [0, 0], [0, 0], [1, 1], [4, 4]], np.float32)
    store = made_store(tmp_path / "whole", keys, [7, 7, 7, 8, 9])
    pruned = prune(store, tmp_path / "pruned", plain_search(store), k=2)
    assert OpenStore(pruned).counts(torch.arange(3), merged=True).tolist() == [3, 1, 1]  # type: ignore[union-attr]
    query = torch.tensor([[0.5, 1.0]])
    config = replace(CONFIG, k=5)
    expected = knn_distribution(store, query, config)
    assert knn_distribution(pruned, query, config) == pytest.approx(expected, rel=1e-5)
    uncounted = knn_distribution(pruned, query, replace(config, use_counts=False))
    assert uncounted[7] < expected[7] - 0.1
    shares = {7: math.exp(-1.25 / 5), 8: math.exp(-0.25 / 5), 9: math.exp(-21.25 / 5)}
    assert uncounted == pytest.approx({token: each / sum(shares.values()) for token, each in shares.items()}, rel=1e-4)


steps_of_sentences = st.lists(  # of three sentences with two rows each
    st.lists(st.one_of(st.floats(0, 1e4), st.just(INFINITE)), min_size=6, max_size=6), min_size=1, max_size=5
)


@given(steps_of_sentences, st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_means_of_sentences(steps: list[list[float]], kept: list[int]) -> None:
    """A step counts by the mean over those of its rows that found something; one that found nothing does not."""
    means: list[list[float]] = [[], [], []]
    sentences = SentenceDistances(3, torch.device("cpu"))

    def take(step: list[float]) -> None:
        so_far = sentences.add(torch.tensor(step))
        for number, mine in enumerate(means):
            rows = [math.sqrt(each) for each in step[2 * number : 2 * number + 2] if each < INFINITE]
            mine += [sum(rows) / len(rows)] if rows else []
            for row in (2 * number, 2 * number + 1):
                assert float(so_far.steps[row]) == max(1, len(mine))
                assert float(so_far.distance[row]) == pytest.approx(sum(mine) / max(1, len(mine)), rel=1e-4, abs=1e-6)

    for step in steps:
        take(step)
    sentences.keep(kept)
    means = [list(means[old]) for old in kept]
    take([4.0, INFINITE] * len(kept))


def test_a_sentence_may_grow_wider() -> None:
    """The first step of beam search has one row a sentence."""
    sentences = SentenceDistances(2, torch.device("cpu"))
    assert sentences.add(torch.tensor([4.0, 9.0])).distance.tolist() == [2, 3]
    so_far = sentences.add(torch.tensor([16.0, 16.0, 16.0, 1.0, 9.0, INFINITE]))
    assert so_far.distance.tolist() == [3, 3, 3, 2.5, 2.5, 2.5]
    assert so_far.steps.tolist() == [2] * 6
