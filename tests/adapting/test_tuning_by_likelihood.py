"""Tuned settings: text made with known settings gives them back, and no setting of the grid is better."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from knnmt.adapting.tuning_by_likelihood import (
    Compared,
    Tried,
    Tuned,
    squared_temperatures,
    tune_positions,
)
from knnmt.adapting.tuning_config import KS, WEIGHTS
from knnmt.calibration.likelihood import Positions
from knnmt.config import RetrievalConfig

ROWS, VOCABULARY = 4000, 50


def made(trust: Tensor, temperature: float, k: int, width: int = 64) -> Positions:
    """Positions whose tokens were drawn from equation 3 with λ of each row; neighbours beyond k know nothing."""
    generator = torch.Generator().manual_seed(4)
    distances_sq = (4 * torch.rand(ROWS, width, generator=generator)).cumsum(1) + 9
    neighbours = torch.randint(VOCABULARY, (ROWS, width), generator=generator)
    chosen = torch.multinomial((-distances_sq[:, :k] / temperature).softmax(-1), 1, generator=generator)
    base = torch.randn(ROWS, VOCABULARY, generator=generator).softmax(-1)
    of_model = torch.multinomial(base, 1, generator=generator)
    tokens = torch.where(torch.rand(ROWS, 1, generator=generator) < trust, neighbours.gather(1, chosen), of_model)
    return Positions(
        base.gather(1, tokens)[:, 0].double(), distances_sq, neighbours == tokens, torch.arange(ROWS) // 10
    )


@pytest.mark.parametrize(("trust", "temperature", "k"), [(0.6, 60.0, 8), (0.3, 20.0, 16)])
def test_the_settings_that_made_the_text_are_found(trust: float, temperature: float, k: int) -> None:
    positions = made(torch.full((ROWS, 1), trust), temperature, k)
    heard: list[Tried] = []
    tuned = tune_positions(positions, on_tried=heard.append)
    assert tuple(heard) == tuned.tried
    assert [each.k for each in tuned.tried] == list(KS)
    assert tuned.fixed.k == k
    assert tuned.fixed.fixed.interpolation_weight == pytest.approx(trust, abs=0.06)
    assert temperature / 2 < tuned.fixed.fixed.temperature < 2 * temperature
    for each in tuned.tried:
        assert positions.loss(each.fixed) == pytest.approx(each.fixed_loss, rel=1e-6)
        assert positions.loss(each.fading) == pytest.approx(each.fading_loss, rel=1e-6)


def test_nothing_of_the_grid_is_better() -> None:
    positions = made(torch.full((ROWS, 1), 0.5), 30.0, 8, width=16)
    tuned = tune_positions(positions)
    assert [each.k for each in tuned.tried] == [4, 8, 16]
    for each in tuned.tried:
        tried = [
            positions.loss(RetrievalConfig(each.k, weight, temperature))
            for temperature in squared_temperatures(positions)[::5]
            for weight in WEIGHTS[::3]
        ]
        assert min(tried) >= each.fixed_loss - 1e-9


def test_a_grid_of_your_own_is_all_that_is_tried() -> None:
    tuned = tune_positions(made(torch.full((ROWS, 1), 0.6), 60.0, 8), ks=(4, 16), weights=(0.2, 0.3))
    assert [each.k for each in tuned.tried] == [4, 16]
    assert {each.fixed.interpolation_weight for each in tuned.tried} == {0.3}  # the nearest to 0.6


def test_a_memory_that_knows_nothing_gets_no_weight() -> None:
    assert tune_positions(made(torch.zeros(ROWS, 1), 30.0, 8, width=8)).fixed.fixed.interpolation_weight <= 0.05


def test_the_smallest_k_with_nearly_all_of_the_gain_is_chosen() -> None:
    losses = {4: 2.0, 8: 1.54, 16: 1.5, 32: 1.4995, 64: 1.51}
    configs = {k: RetrievalConfig(k, 0.5, 10.0) for k in losses}
    tried = tuple(Tried(k, configs[k], loss, configs[k], loss + 0.1 * (k == 8)) for k, loss in losses.items())
    assert (Tuned(2.5, tried).fixed.k, Tuned(2.5, tried).fading.k) == (8, 16)
    assert Tuned(2.0, tried).fixed.k == 16  # less is gained, so less may be lost
    assert Tuned(1.0, tried).fixed.k == 32  # nothing is gained


def test_what_was_there_sets_a_limit_to_thrift_and_caution() -> None:
    """A smaller k and a more cautious λ may cost some of the gain, but not so much that all was better before."""
    generator = torch.Generator().manual_seed(1)
    nearest_sq = (1 + 7 * torch.rand(ROWS, 1, generator=generator)).square()
    distances_sq = torch.cat([nearest_sq, torch.rand(ROWS, 15, generator=generator)], dim=1).cumsum(1)
    knows = (nearest_sq < 16) & (torch.rand(ROWS, 16, generator=generator) < 0.95)  # where it is near
    positions = Positions(torch.full((ROWS,), 0.1).double(), distances_sq, knows, torch.arange(ROWS) // 10)
    loose = tune_positions(positions)
    cautious = loose.fading.fading
    assert cautious.fading is not None
    before = replace(cautious, fading=replace(cautious.fading, scale=1.2 * cautious.fading.scale))
    assert positions.loss(before) < loose.fading.fading_loss  # or nothing is shown
    tuned = tune_positions(positions, before=before)
    assert tuned.before == positions.loss(before)
    assert tuned.fading.fading_loss <= tuned.before
    assert positions.loss(tuned.fading.fading) == pytest.approx(tuned.fading.fading_loss, rel=1e-6)
    assert tuned.fixed.fixed == loose.fixed.fixed
    worse = replace(before, interpolation_weight=0.1)
    assert tune_positions(positions, before=worse).fading == loose.fading


def test_a_limit_that_nothing_reaches_changes_nothing() -> None:
    losses = {4: 2.0, 8: 1.54, 16: 1.5}
    config = RetrievalConfig(4, 0.5, 10.0)
    tried = tuple(Tried(k, config, loss, config, loss) for k, loss in losses.items())
    assert [Tuned(2.5, tried, before).fading.k for before in (1.4, 1.5, 1.53, 1.54, 1.6)] == [8, 16, 16, 8, 8]


def test_tuned_settings_are_better_only_if_no_text_loses_by_them() -> None:
    positions = made(torch.full((ROWS, 1), 0.6), 60.0, 8)
    good, bad = tune_positions(positions).fixed.fixed, RetrievalConfig(8, 0.9, 1e-3)
    assert Compared.of(bad, good, positions, None).improves
    assert Compared.of(bad, good, positions, positions).improves
    assert not Compared.of(good, good, positions, positions).improves
    assert not Compared.of(good, bad, positions, positions).improves
    assert not Compared((2.0, 1.9), (1.5, 1.6)).improves
    assert Compared((2.0, 1.9), (1.5, 1.6)).in_words == (
        "loss 2.0000 before, 1.9000 tuned, on the tuning pairs; on the reported pairs 1.5000 and 1.6000"
    )


def test_a_store_with_few_entries_gives_all_of_them() -> None:
    (only,) = tune_positions(made(torch.full((ROWS, 1), 0.5), 30.0, 2, width=3)).tried
    assert only.k == 3
