"""k-means and the search among its centres, beside numpy."""

from __future__ import annotations

import numpy as np
import torch

from knnmt.index.centres import nearest_centres, train_centres
from support.index_stores import clustered


def test_centres_are_the_means_of_clusters_that_lie_apart() -> None:
    chance = np.random.default_rng(0)
    true = 100 * np.eye(6, 8, dtype=np.float32)
    keys = torch.from_numpy(
        (true[chance.integers(6, size=20_000)] + chance.normal(size=(20_000, 8))).astype(np.float32)
    )
    centres = train_centres(keys, 24, seed=0)
    nearest = torch.cdist(torch.from_numpy(true), centres).amin(1)
    assert (nearest < 2).all()
    assert torch.cdist(keys, centres).amin(1).square().mean() < 8  # below the variance around the true means


def test_training_lessens_the_error_and_repeats_itself() -> None:
    keys = torch.from_numpy(clustered(3000))
    chosen = keys[torch.randperm(3000, generator=torch.Generator().manual_seed(5))[:64]]
    centres = train_centres(keys, 64, seed=5)
    error, at_first = (torch.cdist(keys, each).amin(1).square().mean() for each in (centres, chosen))
    assert error < 0.8 * at_first
    assert torch.equal(centres, train_centres(keys, 64, seed=5))
    assert not torch.equal(centres, train_centres(keys, 64, seed=6))


def test_more_centres_than_different_keys() -> None:
    keys = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).repeat(20, 1)
    centres = train_centres(keys, 8, seed=0)
    assert {tuple(centre) for centre in centres.tolist()} == {(0.0, 1.0), (2.0, 3.0)}


def test_nearest_centres() -> None:
    queries, centres = torch.from_numpy(clustered(7)), torch.from_numpy(clustered(40, seed=1))
    distances_sq, numbers = nearest_centres(queries, centres, centres.square().sum(1), 5)
    expected = torch.cdist(queries, centres).square().sort(dim=1)
    assert torch.equal(numbers, expected.indices[:, :5])
    torch.testing.assert_close(distances_sq, expected.values[:, :5], rtol=1e-4, atol=1e-4)
