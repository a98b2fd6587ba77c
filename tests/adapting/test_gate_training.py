"""Training of gates beside numpy, and on made-up text whose best λ is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.adapting.development import search_text
from knnmt.adapting.gate_training import (
    Epoch,
    GateConfig,
    GateText,
    Training,
    gate_loss,
    gate_text,
    train_gate,
)
from knnmt.calibration.likelihood import Positions
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError, SettingError
from knnmt.retrieval.gate import TrainedGate, gate_inputs
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.sentence_stores import UNTUNED_FAST
from support.datastore_pairs import some_pairs

CONFIG = RetrievalConfig(4, 0.5, 10.0)
QUICK = GateConfig((), epochs=12, learning_rate=1e-3, batch_rows=64, l1=0.0)


@pytest.fixture(scope="module")
def opened(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
    return OpenStore(Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(30), tiny))


def made_text(rows: int, seed: int) -> GateText:
    """The first input says whether the model or the memory knows the token, the second whether it matters."""
    chance = np.random.default_rng(seed)
    inputs = chance.normal(size=(rows, 6)).astype(np.float32)
    memory, matters = inputs[:, 0] > 0, inputs[:, 1] > 0
    base = np.where(matters, np.where(memory, 0.05, 0.7), 0.98)
    knn = np.where(matters, np.where(memory, 0.9, 0.05), 0.97)
    distances_sq = torch.from_numpy(1 + chance.random((rows, 2))).float()
    sentences = torch.arange(rows) // 10
    positions = Positions(torch.from_numpy(base), distances_sq, torch.ones((rows, 2), dtype=torch.bool), sentences)
    targets = torch.zeros(rows, dtype=torch.long)
    return GateText(torch.from_numpy(inputs), positions, torch.from_numpy(knn), rows // 10, targets)


@pytest.fixture(scope="module")
def trained(opened: OpenStore) -> Training:
    return train_gate(opened, made_text(800, 1), made_text(300, 2), CONFIG, QUICK)


@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_the_loss_is_that_of_numpy(l1: float) -> None:
    chance = np.random.default_rng(0)
    logits, base, knn = chance.normal(size=50) * 4, chance.random(50), chance.random(50)
    knn[:5] = 1e-30
    weights = 1 / (1 + np.exp(-logits))
    expected = np.mean(-np.log((1 - weights) * base + weights * knn) + l1 * weights)
    first = torch.from_numpy(logits).requires_grad_()
    loss = gate_loss(first, torch.from_numpy(base).log(), torch.from_numpy(knn).log(), l1)
    assert float(loss.detach()) == pytest.approx(expected)
    loss.backward()  # type: ignore[no-untyped-call]
    step = 1e-6
    for row in (0, 20):
        moved = logits.copy()
        moved[row] += step
        w = 1 / (1 + np.exp(-moved))
        slope = (np.mean(-np.log((1 - w) * base + w * knn) + l1 * w) - expected) / step
        assert first.grad is not None
        assert float(first.grad[row]) == pytest.approx(slope, abs=1e-5)


def test_a_gate_learns_more_than_any_fixed_weight(trained: Training) -> None:
    new = made_text(500, 3)
    losses = trained.losses(new)
    best_fixed = min(new.loss(torch.full((1,), weight)) for weight in np.linspace(0, 1, 51))
    perfect = float(-torch.maximum(new.base, new.knn).log().mean())
    assert losses["fixed"] >= best_fixed
    assert losses["gate"] < (best_fixed + perfect) / 2
    assert losses["alone"] == pytest.approx(float(-new.base.log().mean()))
    assert trained.gate.record.losses["gate"] == pytest.approx(trained.losses(made_text(300, 2))["gate"])
    assert trained.gate.record.epochs == min(trained.epochs, key=lambda each: each.validation).number


def test_thresholds_are_judged_beside_chance(trained: Training) -> None:
    new = made_text(500, 3)
    weights = trained.predicted(new)
    losses = trained.losses(new)
    none, half, every = trained.judge(new, (1.0, 0.5, 0.0))
    assert [none.searched, every.searched] == [0, 1]
    assert [none.gate, every.gate] == pytest.approx([losses["alone"], losses["gate"]])
    searched = weights.numpy() > 0.5
    base, knn, weight = (each.numpy() for each in (new.base, new.knn, weights))
    mixed = np.where(searched, (1 - weight) * base + weight * knn, base)
    assert half.gate == pytest.approx(float(-np.log(mixed).mean()))
    assert half.searched == pytest.approx(searched.mean())
    drawn = []
    for seed in range(60):
        lots = np.random.default_rng(seed).random(len(new)) < half.searched
        drawn.append(new.loss(weights * torch.from_numpy(lots)))
    assert half.chance == pytest.approx(np.mean(drawn), abs=0.01)
    assert half.gate < half.chance


def test_a_cost_of_weight_makes_it_small_where_it_does_not_matter(opened: OpenStore) -> None:
    texts, new = (made_text(800, 1), made_text(300, 2)), made_text(500, 3)
    idle = new.inputs[:, 1] < -0.5
    means = []
    for l1 in (0.0, 0.2):
        found = train_gate(opened, *texts, CONFIG, replace(QUICK, l1=l1))
        means.append(float(found.predicted(new)[idle].mean()))
    assert means[1] < means[0] - 0.2


def test_a_seed_trains_the_same_gate(opened: OpenStore) -> None:
    texts = made_text(300, 1), made_text(100, 2)
    few = replace(QUICK, epochs=2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = train_gate(opened, *texts, CONFIG, few).gate.network.state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    again = train_gate(opened, *texts, CONFIG, few).gate.network.state_dict()
    other = train_gate(opened, *texts, CONFIG, replace(few, seed=1)).gate.network.state_dict()
    assert all(torch.allclose(first[name], again[name], atol=1e-4) for name in first)  # a CPU may round otherwise
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])


def test_training_ends_when_it_gains_nothing(opened: OpenStore) -> None:
    heard: list[Epoch] = []
    text, other = made_text(200, 1), made_text(100, 2)
    wrong = replace(other, knn=other.base, positions=replace(other.positions, base=other.knn))  # the opposite is right
    found = train_gate(opened, text, wrong, CONFIG, replace(QUICK, epochs=60, patience=3), heard.append)
    assert heard == found.epochs
    assert len(heard) == found.gate.record.epochs + 3 < 60


def test_text_is_forced_and_searched_as_for_tuning(tiny: TransformerEngine, opened: OpenStore) -> None:
    pairs = some_pairs(6, start=70)
    features = ("confidence", "entropy")
    heard: list[int] = []
    found = gate_text(tiny, opened, pairs, CONFIG, features, lambda done, _: heard.append(done))
    known = search_text(tiny, opened, pairs, CONFIG.k)
    assert heard[-1] == 2 * len(pairs)
    assert found.pairs == 6
    assert torch.allclose(found.base, known.base)
    assert torch.allclose(found.knn, known.positions().knn(CONFIG.temperature))
    assert torch.allclose(found.inputs[:, :32], known.states)
    begin = 0
    for target in tiny.tokenizer.encode_targets([pair.target for pair in pairs]):
        for place in range(len(target)):
            row = begin + place
            scores = tiny.log_probabilities(known.states[row : row + 1])
            expected = gate_inputs(features, known.states[row : row + 1], scores)
            assert torch.allclose(found.inputs[row], expected[0], atol=1e-4)
        begin += len(target)
    assert begin == len(found)


def test_a_trained_gate_is_written_and_read(opened: OpenStore, tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(12), tiny)
    ready = OpenStore(store)
    text, other = (gate_text(tiny, ready, some_pairs(8, start=start), CONFIG, ()) for start in (50, 70))
    found = train_gate(ready, text, other, CONFIG, replace(QUICK, epochs=2))
    found.gate.write(store.path)
    read = TrainedGate.read(store)
    assert read.record == found.gate.record
    rows = text.inputs[:, :32], torch.zeros(len(text), 231)
    assert torch.allclose(torch.sigmoid(read.logits(*rows).double()), found.predicted(text))


def test_what_cannot_work_is_refused(tiny: TransformerEngine, tmp_path: Path) -> None:
    for wrong in ({"features": ("colour",)}, {"epochs": 0}, {"l1": -1.0}):
        with pytest.raises(SettingError):
            GateConfig(**wrong)
    store = Datastore.build(tmp_path / "s", some_pairs(2), tiny)
    with pytest.raises(SettingError, match="name another profile"):
        gate_text(tiny, OpenStore(store), some_pairs(2), UNTUNED_FAST, ())
    store.remove(lambda _: True)
    with pytest.raises(InputError, match="no entries left"):
        gate_text(tiny, OpenStore(store), some_pairs(2), CONFIG, ())
