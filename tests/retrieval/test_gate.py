"""Gates: what they choose, what they keep on disk, and whom they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.compression.pca import reduce
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import (
    DatastoreDamagedError,
    DatastoreMismatchError,
    DatastoreVersionError,
    SettingError,
)
from knnmt.retrieval.gate import (
    FILE,
    GateNetwork,
    GateRecord,
    ThresholdGate,
    TrainedGate,
    gate_inputs,
)
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.step import SentenceSoFar, Step
from knnmt_lab.reproduction.random_gate import RandomGate
from support.datastore_pairs import some_pairs
from support.signed_networks import rewrite_network

ALL = ("confidence", "entropy")


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(30), tiny)


def made_gate(store: Datastore, features: tuple[str, ...] = ALL) -> TrainedGate:
    """One with random weights and plain normalisation."""
    manifest = store.manifest
    torch.manual_seed(1)
    network = GateNetwork(32 + len(features))
    network.normalise_by(torch.randn(50, len(network.mean)) * 3 + 1)
    record = GateRecord(
        features=features,
        k=4,
        temperature=7.5,
        use_counts=True,
        model=manifest.model,
        tokenizer=manifest.tokenizer,
        dim=32,
        transforms=manifest.transforms,
        seed=3,
        l1=0.1,
        pairs=20,
        epochs=5,
        losses={"gate": 1.5},
    )
    return TrainedGate(network, record)


def some_rows(rows: int, vocabulary: int = 231) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    scores = torch.randn(rows, vocabulary, generator=generator).log_softmax(1)
    return torch.randn(rows, 32, generator=generator), scores, torch.randint(229, (rows, 6), generator=generator)


def a_step(store: Datastore, states: Tensor, scores: Tensor, history: Tensor) -> Step:
    opened, config = OpenStore(store), RetrievalConfig(4, 0.5, 10.0)
    nothing = SentenceSoFar(torch.zeros(len(states)), torch.zeros(len(states)))
    return Step(opened.snapshot, config, states, opened.project(states), nothing, scores, history)


def test_the_network_is_four_layers_and_one(store: Datastore) -> None:
    gate = made_gate(store, ())
    states, scores, _ = some_rows(9)
    parts = {name: each.double().numpy() for name, each in gate.network.state_dict().items()}
    values = (states.double().numpy() - parts["mean"]) * parts["scale"]
    for layer in (0, 3, 6, 9):
        values = np.maximum(values @ parts[f"layers.{layer}.weight"].T + parts[f"layers.{layer}.bias"], 0)
        assert values.shape == (9, 128)
    expected = (values @ parts["layers.12.weight"].T + parts["layers.12.bias"])[:, 0]
    np.testing.assert_allclose(gate.logits(states, scores), expected, rtol=1e-4, atol=1e-5)


def test_inputs_are_the_state_and_what_is_named(store: Datastore) -> None:
    states, scores, _ = some_rows(5)
    found = gate_inputs(ALL, states, scores)
    p = scores.double().exp().numpy()
    assert torch.equal(found[:, :32], states)
    np.testing.assert_allclose(found[:, 32], np.log(p.max(1)), rtol=1e-5)
    np.testing.assert_allclose(found[:, 33], -(p * np.log(p)).sum(1), rtol=1e-5)
    assert gate_inputs(["entropy"], states, scores).shape == (5, 33)


def test_a_threshold_lets_through_what_is_above_it(store: Datastore) -> None:
    gate, rows = made_gate(store), some_rows(200)
    weights = torch.sigmoid(gate.logits(*rows[:2]))
    alpha = float(weights.sort().values[99:101].mean())
    searched, log_lambda = ThresholdGate(gate, alpha)(a_step(store, *rows))
    assert log_lambda is not None
    assert torch.equal(searched, weights > alpha)
    assert torch.allclose(log_lambda.exp(), weights)
    assert bool(ThresholdGate(gate, 0.0)(a_step(store, *rows))[0].all())


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_chance_depends_on_the_row_alone(store: Datastore, rate: float) -> None:
    states, scores, history = some_rows(4000)
    chance = RandomGate(rate)
    searched, log_lambda = chance(a_step(store, states, scores, history))
    assert log_lambda is None
    assert float(searched.double().mean()) == pytest.approx(rate, abs=0.03)
    assert torch.equal(chance(a_step(store, states[7:90], scores[7:90], history[7:90]))[0], searched[7:90])
    if 0 < rate < 1:
        again = RandomGate(rate, seed=1)(a_step(store, states, scores, history))[0]
        both = float((searched & again).double().mean())
        assert both == pytest.approx(rate * rate, abs=0.03)
        same_scores = scores[:1].expand(4000, -1)
        assert float(chance(a_step(store, states, same_scores, history))[0].double().mean()) == pytest.approx(
            rate, abs=0.03
        )
    gate = made_gate(store)
    predicted = RandomGate(rate, 0, gate)(a_step(store, states, scores, history))
    assert torch.equal(predicted[0], searched)
    assert predicted[1] is not None
    assert torch.allclose(predicted[1].exp(), torch.sigmoid(gate.logits(states, scores)))


def test_a_gate_is_read_as_it_was_written(store: Datastore) -> None:
    gate, rows = made_gate(store), some_rows(20)
    gate.write(store.path)
    read = TrainedGate.read(store)
    assert read.record == gate.record
    assert torch.equal(read.logits(*rows[:2]), gate.logits(*rows[:2]))
    assert {each.signature() for each in (read, gate) for _ in range(20)} == {gate.signature()}  # every time
    (store.path / FILE).unlink()
    with pytest.raises(SettingError, match=r"has no gate.*knnmt train-gate"):
        TrainedGate.read(store)


@pytest.mark.parametrize(
    ("field", "value", "error", "said"),
    [
        ("version", 2, DatastoreVersionError, "version 2"),
        ("model", "0" * 64, DatastoreMismatchError, "with model 000000000000"),
        ("dim", 16, DatastoreMismatchError, "with dimension 16"),
        ("transforms", ["pca:8"], DatastoreMismatchError, "with transforms pca:8, but this one has none"),
        ("features", ["colour"], DatastoreDamagedError, "colour"),
        ("k", None, DatastoreDamagedError, "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused(store: Datastore, field: str, value: object, error: type, said: str) -> None:
    made_gate(store).write(store.path)

    def change(_: dict[str, Tensor], record: dict[str, Any]) -> None:
        record[field] = value
        if value is None:
            del record[field]

    rewrite_network(store.path / FILE, change)
    with pytest.raises(error, match=said) as raised:
        TrainedGate.read(store)
    assert "knnmt train-gate" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"no gate", None])
def test_damage_is_said(store: Datastore, content: bytes | None) -> None:
    gate = made_gate(store)
    gate.write(store.path)
    path = store.path / FILE
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(DatastoreDamagedError, match=r"expected a gate.*knnmt train-gate"):
        TrainedGate.read(store)
    path.unlink()


def test_stores_made_from_others_do_not_inherit_it(store: Datastore, tmp_path: Path) -> None:
    made_gate(store).write(store.path)
    reduced, _ = reduce(store, tmp_path / "r", 8)
    with pytest.raises(SettingError, match="has no gate"):
        TrainedGate.read(reduced)
    (tmp_path / "r" / FILE).write_bytes((store.path / FILE).read_bytes())
    with pytest.raises(DatastoreMismatchError, match="dimension 32, but this one has 8"):
        TrainedGate.read(reduced)
    (store.path / FILE).unlink()


def test_a_gate_brings_its_settings_and_refuses_others(store: Datastore) -> None:
    gate = made_gate(store)
    config = RetrievalConfig(8, 0.5, 3.0, gate=0.5)
    assert gate.applied_to(config, []) == replace(config, k=4, temperature=7.5)
    assert gate.applied_to(replace(config, temperature=7.501), ["temperature"]).temperature == 7.5
    for name in ("k", "temperature"):
        with pytest.raises(SettingError, match=rf"trained for {name} .*--k 8 --temperature 3"):
            gate.applied_to(config, [name])
