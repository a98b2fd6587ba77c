"""Likelihoods of grids of settings, against plain loops over positions and neighbours."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.calibration.likelihood import FadingGrid, Positions, losses, so_far
from knnmt.config import Fading, RetrievalConfig

ROWS, K = 40, 6
FADING = Fading(3.0, 0.6, 4.0, 0.3)


def made(seed: int, counts: bool = False, missing: bool = False) -> Positions:
    generator = torch.Generator().manual_seed(seed)
    distances_sq = (4 * torch.rand(ROWS, K, generator=generator)).cumsum(1)
    if missing:
        distances_sq[::5] = float("inf")
        distances_sq[1::7, 3:] = float("inf")
    return Positions(
        0.02 + 0.9 * torch.rand(ROWS, generator=generator).double(),
        distances_sq,
        (torch.rand(ROWS, K, generator=generator) < 0.4) & ~distances_sq.isinf(),
        torch.arange(ROWS) // 8,
        (torch.randint(1, 5, (ROWS, K), generator=generator).float().log() if counts else None, None),
    )


def loss_by_loop(positions: Positions, config: RetrievalConfig) -> float:
    total = 0.0
    seen: list[float] = []
    for row in range(ROWS):
        if row % 8 == 0:
            seen = []
        shares = right = 0.0
        for n in range(config.k):
            share = math.exp(-float(positions.distances_sq[row, n]) / config.temperature)
            if (log_counts := positions.log_counts[0 if config.use_counts else 1]) is not None:
                share *= math.exp(float(log_counts[row, n]))
            shares += share
            right += share * bool(positions.matches[row, n])
        nearest = math.sqrt(positions.distances_sq[row, 0])
        weight = config.interpolation_weight if shares else 0.0
        if config.fading is not None and shares:
            seen.append(nearest)
            fading, mean = config.fading, sum(seen) / len(seen)
            weight /= 1 + math.exp((nearest - fading.scale) / fading.width)
            weight /= 1 + math.exp((mean - fading.sentence_scale) / fading.sentence_width)
            weight *= 1 - min(1, nearest / fading.scale) / (len(seen) + 1)
        memory = right / shares if shares else 0.0
        total -= math.log(weight * memory + (1 - weight) * float(positions.base[row]))
    return total / ROWS


@given(
    st.integers(0, 50), st.booleans(), st.booleans(), st.integers(1, K), st.floats(0, 0.95), st.floats(0.5, 20),
    st.sampled_from([None, FADING]), st.booleans(),
)  # fmt: skip
def test_the_loss_is_that_of_a_plain_loop(
    seed: int, counts: bool, missing: bool, k: int, weight: float, temperature: float, fading: Fading | None, use: bool
) -> None:
    positions = made(seed, counts, missing)
    config = RetrievalConfig(k, weight, temperature, fading, use_counts=use)
    assert positions.loss(config) == pytest.approx(loss_by_loop(positions, config), rel=1e-4)


def test_the_model_alone_is_what_no_weight_gives() -> None:
    positions = made(3)
    alone = -float(positions.base.log().mean())
    assert positions.loss(None) == pytest.approx(alone)
    assert positions.loss(RetrievalConfig(4, 0.0, 5.0, FADING)) == pytest.approx(alone)


def test_the_best_of_fixed_weights_is_the_best_of_all() -> None:
    positions = made(7)
    temperatures, weights = [1.0, 3.0, 9.0], [0.0, 0.2, 0.5, 0.8]
    expected = {(t, w): loss_by_loop(positions, RetrievalConfig(K, w, t)) for t, w in product(temperatures, weights)}
    for found, temperature in zip(positions.best_fixed(temperatures, weights), temperatures, strict=True):
        loss, weight = min((expected[temperature, each], each) for each in weights)
        assert found[1:] == (temperature, weight)
        assert found[0] == pytest.approx(loss, rel=1e-5)


def test_fading_is_cautious_but_keeps_half_of_what_can_be_gained() -> None:
    """The memory is right where it is near, and says nothing where it is not."""
    generator = torch.Generator().manual_seed(1)
    rows = 2000
    distances_sq = (1 + 7 * torch.rand(rows, 1, generator=generator)).square().repeat(1, 3)
    positions = Positions(
        torch.full((rows,), 0.1).double(),
        distances_sq,
        (distances_sq < 16) & (torch.rand(rows, 1, generator=generator) < 0.95),
        torch.arange(rows) // 10,
    )
    grid, knn = FadingGrid(positions), positions.knn(5.0)
    fixed_loss, _, _ = min(positions.best_fixed([5.0], [0.1, 0.3, 0.5, 0.7, 0.9]))
    best = grid.best_loss(knn)
    loss, most, fading = grid.cautious(knn, fixed_loss)
    assert best < loss <= (best + fixed_loss) / 2 < fixed_loss
    assert loss == pytest.approx(positions.loss(RetrievalConfig(3, most, 5.0, fading)), rel=1e-6)
    assert grid.cautious(knn, fixed_loss, (best + loss) / 2)[0] <= (best + loss) / 2 < loss
    assert grid.cautious(knn, fixed_loss, best - 1) == (loss, most, fading)  # which none of them reaches
    assert grid.cautious(knn, -1.0)[0] == best  # a fixed λ that is better leaves nothing to give away


def test_steps_that_found_nothing_do_not_count() -> None:
    nearest = torch.tensor([float("inf"), 2.0, float("inf"), 4.0, 5.0, float("inf")])
    found = so_far(nearest, torch.tensor([0, 0, 0, 0, 1, 1]))
    assert found.distance.tolist() == [0, 2, 2, 3, 5, 5]
    assert found.steps.tolist() == [1, 1, 1, 2, 1, 1]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1e-6, 1)), min_size=1, max_size=5), st.floats(0, 1))
def test_a_mixture_never_loses_more_than_the_worse_of_its_parts(rows: list[tuple[float, float]], weight: float) -> None:
    knn, base = torch.tensor(rows).double().T
    found = float(losses(knn, base, torch.tensor([[weight]])))
    ends = [float(losses(knn, base, torch.tensor([[end]]))) for end in (0.0, 1.0)]
    assert found <= max(ends) + 1e-9
    assert found <= (1 - weight) * ends[0] + weight * ends[1] + 1e-6  # -log is convex
