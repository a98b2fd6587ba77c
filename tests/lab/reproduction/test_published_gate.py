"""The authors' gate: statistics of n-grams as a slow count has them, training that learns, chance of whole steps."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from knnmt.adapting.gate_training import GateText
from knnmt.calibration.likelihood import Positions
from knnmt_lab.reproduction.published_gate import NgramStatistics, StepChance, threshold_for, train_published

END = 0


class _Segment:
    """The part of a segment that is counted."""

    class record:  # noqa: N801 - as a segment has it
        sentences = 40

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.targets = [
            np.array([*chance.integers(1, 5, chance.integers(1, 9)), END], dtype=np.int32) for _ in range(40)
        ]

    def target_tokens(self, sentence: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return self.targets[sentence]


class _Store:
    def __init__(self) -> None:
        self.segments = [_Segment(1), _Segment(2)]

    @property
    def targets(self) -> list[list[int]]:
        return [each.tolist() for segment in self.segments for each in segment.targets]


@pytest.fixture
def store() -> _Store:
    return _Store()


def slow(store: _Store, context: list[int]) -> list[float]:
    """log(1 + occurrences) of the last 1 to 4 tokens, and log(1 + different followers), counted one by one."""
    occurrences: Counter[tuple[int, ...]] = Counter()
    followers: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for target in store.targets:
        padded = [END] * 4 + target
        for place in range(4, len(padded)):
            for order in (1, 2, 3, 4):
                before = tuple(padded[place - order : place])
                occurrences[before] += 1
                followers[before].add(padded[place])
    asked = [tuple(([END] * 4 + context)[-order:]) for order in (1, 2, 3, 4)]
    return [math.log1p(occurrences[each]) for each in asked] + [math.log1p(len(followers[each])) for each in asked]


def statistics_of(store: _Store) -> NgramStatistics:
    return NgramStatistics(SimpleNamespace(datastore=store), END)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", [[], [1], [2, 3], [1, 2, 3, 4], [4, 4, 4, 4, 1], [99]])
def test_statistics_are_those_of_a_slow_count(store: _Store, context: list[int]) -> None:
    history = torch.tensor([context], dtype=torch.long).view(1, len(context))
    torch.testing.assert_close(statistics_of(store).of_history(history), torch.tensor([slow(store, context)]))


def made_text(store: _Store, rows: int = 1000) -> GateText:
    """The memory is right exactly where the first number of the state is positive."""
    chance = np.random.default_rng(3)
    states = chance.normal(size=(rows, 20)).astype(np.float32)
    right = states[:, 0] > 0
    base, knn = np.where(right, 0.1, 0.8), np.where(right, 0.8, 0.1)
    numbers = np.stack([np.log(np.full(rows, 0.7)), np.full(rows, 1.0)], axis=1).astype(np.float32)
    positions = Positions(
        torch.from_numpy(base),
        torch.ones((rows, 1)),
        torch.ones((rows, 1), dtype=torch.bool),
        torch.arange(rows) // 10,
    )
    targets = torch.from_numpy(chance.integers(0, 5, rows))
    inputs = torch.from_numpy(np.concatenate([states, numbers], axis=1))
    return GateText(inputs, positions, torch.from_numpy(knn), rows // 10, targets)


def test_positions_of_a_text_see_the_tokens_before_them_in_their_sentence(store: _Store) -> None:
    text = made_text(store, 30)
    found = statistics_of(store).of_text(text)
    for row in range(30):
        before = text.targets[row // 10 * 10 : row].tolist()
        torch.testing.assert_close(found[row], torch.tensor(slow(store, before)))


def test_training_learns_and_a_threshold_has_its_share(store: _Store) -> None:
    text, ngrams = made_text(store), statistics_of(store)
    network = train_published(text, ngrams, seed=1)
    few = made_text(store, 70)
    weights = [next(train_published(few, ngrams, seed).parameters()) for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    inputs = torch.cat([text.inputs[:, :20], torch.full((1000, 1), 0.7), text.inputs[:, 21:], ngrams.of_text(text)], 1)
    with torch.no_grad():
        predicted = torch.sigmoid(network(inputs).double())
    right = text.inputs[:, 0] > 0
    assert predicted[right].mean() > predicted[~right].mean() + 0.3
    for share in (0.75, 0.5, 0.25):
        alpha = threshold_for(share, network, ngrams, text)
        assert float((predicted > alpha).double().mean()) == pytest.approx(share, abs=0.01)


class _Gate:
    """A gate whose λ is that of the state's first number."""

    def logits(self, step: torch.Tensor) -> torch.Tensor:
        return step[:, 0]

    def signature(self) -> str:
        return "made"


def test_chance_is_one_draw_for_all_rows_of_a_step() -> None:
    gate = StepChance(0.3, 5, _Gate())  # type: ignore[arg-type]
    draws = []
    for _ in range(1000):
        searched, weights = gate(torch.zeros((6, 1)))  # type: ignore[arg-type]
        assert len(set(searched.tolist())) == 1
        assert weights is not None
        assert torch.equal(weights, torch.full((6,), math.log(0.5)))
        draws.append(bool(searched[0]))
    assert 0.25 < np.mean(draws) < 0.35
    same = StepChance(0.3, 5, _Gate())  # type: ignore[arg-type]
    assert [bool(same(torch.zeros((1, 1)))[0][0]) for _ in range(1000)] == draws  # type: ignore[arg-type]
