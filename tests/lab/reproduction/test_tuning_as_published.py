"""Settings from the paper's grid: nothing of the grid is better, and the smallest k that is nearly as good is taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from knnmt.adapting.tuning_by_bleu import PAPER_KS as KS
from knnmt.adapting.tuning_by_bleu import PAPER_WEIGHTS as WEIGHTS
from knnmt.calibration.likelihood import Positions
from knnmt.config import FastConfig
from knnmt.datastore.arrays import Array
from knnmt_lab.reproduction.tuning import as_published


def made(rows: int = 100, width: int = 64, seed: int = 0) -> Positions:
    generator = torch.Generator().manual_seed(seed)
    return Positions(
        torch.rand(rows, generator=generator).double() * 0.5,
        torch.rand(rows, width, generator=generator).cumsum(1) * 3,
        torch.rand(rows, width, generator=generator) < torch.linspace(0.7, 0.2, width),
        torch.arange(rows) // 10,
        (torch.rand(rows, width, generator=generator) * 9, None),  # counts, which the paper's code does not look at
    )


def slow_loss(positions: Positions, k: int, weight: float, temperature: float) -> float:
    """Equations 2 and 3, row by row."""
    total = 0.0
    for base, distances, matches in zip(positions.base, positions.distances_sq, positions.matches, strict=True):
        shares: Array = np.exp(-distances[:k].double().numpy() / temperature)
        knn = float(shares[matches[:k].numpy()].sum() / shares.sum())
        total -= np.log((1 - weight) * float(base) + weight * knn)
    return total / len(positions)


def test_nothing_of_the_papers_grid_is_much_better() -> None:
    positions = made()
    loss, config = as_published(positions)
    assert config.k in KS
    assert config.interpolation_weight in WEIGHTS
    assert not config.use_counts
    assert loss == pytest.approx(
        slow_loss(positions, config.k, config.interpolation_weight, config.temperature), rel=1e-5
    )
    alone = -float(positions.base.log().mean())
    temperatures = [config.temperature * factor for factor in (0.25, 0.6, 1, 1.6, 4)]
    of_k = {k: min(slow_loss(positions, k, weight, T) for weight in WEIGHTS for T in temperatures) for k in KS}
    assert loss <= of_k[config.k] + 1e-9  # the best T of its k
    best = min(of_k.values())
    assert alone - loss >= 0.94 * (alone - best)


def test_a_store_smaller_than_every_k_gives_all_it_has() -> None:
    assert as_published(made(width=5))[1].k == 5


def test_fast_has_temperatures_of_cosine_distances() -> None:
    positions = made()
    plain, fast = as_published(positions)[1], as_published(positions, FastConfig(7))[1]
    assert fast.fast == FastConfig(7)
    assert fast.temperature == pytest.approx(plain.temperature / 2)
