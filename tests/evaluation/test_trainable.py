"""Training in the benchmark of fine-tuning: what ends it, and that the best state is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAIRS = [([5, 0], [6, 0])]  # one batch: each pass is one update


@pytest.fixture
def trainable(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import trainable

    yield trainable
    sys.modules.pop("trainable")


class Counted(nn.Module):
    """Says the given losses in turn when it is judged, and counts its updates in its only weight."""

    def __init__(self, losses: Sequence[float]) -> None:
        super().__init__()
        self.updates, self.losses = nn.Parameter(torch.zeros(1)), iter(losses)

    def ready(self, _pairs: object) -> Any:
        return SimpleNamespace(tokens=1)

    def loss(self, _batch: object, smoothing: float = 0.0) -> Tensor:
        return -self.updates.sum() if smoothing else torch.tensor(next(self.losses))


def trained(trainable: ModuleType, losses: Sequence[float], seconds: float, passes: int = 40) -> tuple[Any, Counted]:
    model = Counted(losses)
    return trainable.fine_tuned(model, PAIRS, PAIRS, 1.0, passes, 1, seconds=seconds), model


def test_training_ends_after_three_checks_without_a_better_loss(trainable: ModuleType) -> None:
    went, model = trained(trainable, [5.0, 4.0, 3.0, 3.5, 3.0, 3.1, 1.0], float("inf"))
    assert (went.updates, went.best, went.before, went.ended) == (2, 3.0, 5.0, True)
    assert next(model.losses) == 1.0
    shorter, after_two = trained(trainable, [5.0, 4.0, 3.0], float("inf"), passes=2)
    assert not shorter.ended
    assert torch.equal(model.updates, after_two.updates)


def test_a_bound_ends_training_at_the_next_check_and_keeps_the_best(trainable: ModuleType) -> None:
    went, model = trained(trainable, [5.0, 4.0, 3.0], 0.0)
    assert (went.updates, went.best, went.ended) == (1, 4.0, False)
    assert next(model.losses) == 3.0
