"""What stands beside a store's content: whatever was altered there is found, and refused where it is used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from knnmt.adapting.verification import problems_beside
from knnmt.calibration.estimates import Calibration
from knnmt.config import CacheConfig, Fading, FastConfig, RetrievalConfig
from knnmt.datastore.settings import SETTINGS, read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreError, KnnmtError
from knnmt.index.saved import build_index
from knnmt.retrieval.gate import FILE, GateNetwork, GateRecord, TrainedGate
from knnmt.retrieval.profiles import Profile, Profiles, read_profiles, write_profiles
from support.datastore_pairs import some_pairs
from support.signed_networks import rewrite_network

CONFIG = RetrievalConfig(4, 0.5, 20.0, Fading(3.0, 0.5, 4.0, 0.5), cache=CacheConfig(2.0))


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    store = Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(30), tiny)
    distances = tuple(np.linspace(0, 4, 21).tolist())
    Calibration(8, 9.0, 0.4, 0.8, Fading(2.0, 0.3, 2.5, 0.4), distances, 300).save(store.path)
    fast = RetrievalConfig(4, 0.5, 0.05, fast=FastConfig(64))
    profiles = {"knn": Profile(CONFIG, "likelihood", 20, 1.5), "fast": Profile(fast, "bleu", 9, None)}
    write_profiles(store.path, profiles, "knn")
    write_settings(store.path, gain={"pairs": 3, "loss": 1.25})
    build_index(store, "exact")
    gate(store).write(store.path)
    return store


def gate(store: Datastore) -> TrainedGate:
    torch.manual_seed(1)
    network = GateNetwork(33)
    manifest = store.manifest
    record = GateRecord(
        features=("confidence",),
        k=4,
        temperature=7.5,
        use_counts=True,
        model=manifest.model,
        tokenizer=manifest.tokenizer,
        dim=32,
        transforms=(),
        seed=3,
        l1=0.1,
        pairs=20,
        epochs=5,
        losses={"gate": 1.5},
    )
    return TrainedGate(network, record)


@pytest.fixture
def store(made: Datastore) -> Iterator[Datastore]:
    """The same for every test, as it was when the test is done."""
    kept = {name: (made.path / name).read_bytes() for name in (SETTINGS, FILE, "indexes/index.json")}
    yield made
    for name, content in kept.items():
        (made.path / name).unlink(missing_ok=True)
        (made.path / name).write_bytes(content)


def problems(store: Datastore) -> list[str]:
    return [*store.verify(), *problems_beside(store, [])]


def test_a_sound_store_has_no_problems(store: Datastore) -> None:
    assert problems(store) == []


# Settings -------------------------------------------------------------------------------------------------------------


def leaves(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values that hold no others."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        yield from leaves(value, (*place, name)) if isinstance(value, dict | list) else [(*place, name)]


def put(content: Any, place: tuple[Any, ...], value: Any) -> None:
    for name in place[:-1]:
        content = content[name]
    content[place[-1]] = value


def test_every_alteration_of_the_settings_is_found_and_refused(store: Datastore) -> None:
    path = store.path / SETTINGS
    whole = path.read_text()
    places = list(leaves(json.loads(whole)))
    assert len(places) > 40
    for place in places:
        content = json.loads(whole)
        put(content, place, 0.123)
        path.write_text(json.dumps(content))
        assert any("its checksum does not fit" in problem for problem in problems(store)), place
        with pytest.raises(DatastoreDamagedError, match=r"Restore it, or remove it: `knnmt index"):
            read_settings(store.path)


def test_settings_without_a_checksum_are_refused(store: Datastore) -> None:
    path = store.path / SETTINGS
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps(content))
    with pytest.raises(DatastoreDamagedError, match=r"something other than knnmt wrote or altered it.*remove it"):
        read_profiles(store.path)
    assert len(problems(store)) == 1


WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("calibration",), [], "expected an object, found"),
    (("calibration",), "x", "expected an object, found 'x'"),
    (("calibration", "k"), 0, "k must be at least 1"),
    (("calibration", "k"), 10**9, "k must be at most 4,096"),
    (("calibration", "k"), 8.0, "k: expected a whole number, found 8.0"),
    (("calibration", "k"), True, "k: expected a whole number, found True"),
    (("calibration", "temperature"), float("nan"), "temperature: expected a finite number, found nan"),
    (("calibration", "temperature"), 10**400, "temperature: expected a finite number"),
    (("calibration", "fading"), None, "fading: expected an object, found None"),
    (("calibration", "fading", "width"), 0, "widths of fading must be above 0"),
    (("calibration", "fading", "width"), float("inf"), r"fading\.width: expected a finite number"),
    (("calibration", "nearest_distances"), [1.0], "."),
    (("calibration", "nearest_distances"), {"a": 1}, "nearest_distances: expected a list"),
    (("calibration", "nearest_distances", 3), None, r"nearest_distances\[3\]: expected a number, found None"),
    (("calibration", "more"), 1, "unknown field 'more'"),
    (("profiles",), [], "expected names with settings"),
    (("profiles", "knn"), [], "expected an object"),
    (("profiles", "knn", "config"), None, "config: expected an object"),
    (("profiles", "knn", "config", "cache"), [], r"config\.cache: expected an object"),
    (("profiles", "knn", "config", "cache", "scope"), "all", r"config\.cache\.scope: expected 'sentence' or 'batch'"),
    (("profiles", "knn", "config", "cache", "capacity"), 2**40, "capacity"),
    (("profiles", "knn", "config", "cache", "threshold"), -1, "threshold"),
    (("profiles", "knn", "config", "use_counts"), 1, r"config\.use_counts: expected true or false, found 1"),
    (("profiles", "knn", "config", "gate"), 7, "gate must be a threshold"),
    (("profiles", "knn", "pairs"), -1, "pairs cannot be negative"),
    (("profiles", "knn", "method"), 3, "method: expected text"),
    (("profiles", "fast", "config", "fast", "candidates"), 0, "fast must be at least 1"),
    (("profiles", "fast", "loss"), "1", "loss: expected a number"),
    (("default_profile",), 3, "default_profile must be the name"),
    (("default_profile",), {"a": 1}, "default_profile must be the name"),
    (("default_profile",), "absent", "no profile 'absent'"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=str)
def test_settings_of_other_types_and_values_are_found(
    store: Datastore, place: tuple[Any, ...], value: Any, message: str
) -> None:
    """With a checksum that fits."""
    content = read_settings(store.path)
    put(content, place, value)
    write_settings(store.path, **content)
    (problem,) = problems(store)
    with pytest.raises(KnnmtError, match=message):
        raise KnnmtError(problem)


DEEP = ["[" * 200 + "]" * 200, "[" * 100_000, '{"a": ' * 900 + "1" + "}" * 900]


@pytest.mark.parametrize("text", [*DEEP, "[]", "nan", "\0"], ids=lambda text: text[:4])
def test_settings_that_are_no_settings_are_found(store: Datastore, text: str) -> None:
    (store.path / SETTINGS).write_text(text)
    for use in (Calibration.of, Profiles.of, read_settings):
        with pytest.raises(DatastoreDamagedError, match=r"settings\.json: expected"):
            use(store.path)
    assert len(problems(store)) == 1


# The gate -------------------------------------------------------------------------------------------------------------


def test_every_alteration_of_the_gate_is_found_and_refused(store: Datastore) -> None:
    path = store.path / FILE
    whole = path.read_bytes()
    chance = np.random.default_rng(6)
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in [*chance.integers(0, header, 30).tolist(), *chance.integers(header, len(whole), 30).tolist()]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert problems(store), place
        with pytest.raises(DatastoreError):
            TrainedGate.read(store)


def test_a_gate_without_a_checksum_is_refused(store: Datastore) -> None:
    path = store.path / FILE
    with safe_open(path, "pt") as file:
        record = file.metadata()["gate"]
    save_file(load_file(path), path, {"gate": record})
    with pytest.raises(DatastoreDamagedError, match=r"something other than knnmt wrote or altered it.*train-gate"):
        TrainedGate.read(store)
    assert len(problems(store)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"k": 0},
        {"k": "4"},
        {"k": 10**9},
        {"temperature": float("nan")},
        {"temperature": -1},
        {"use_counts": 1},
        {"features": "confidence"},
        {"features": ["confidence", "confidence"]},
        {"features": ["entropy", "confidence"]},
        {"features": [1]},
        {"transforms": None},
        {"losses": {"gate": None}},
        {"losses": []},
        {"dim": -1},
        {"more": 1},
        {"version": "1"},
        {"version": [[]]},
    ],
    ids=str,
)
def test_gates_with_records_of_other_types_and_values_are_refused(store: Datastore, change: dict[str, Any]) -> None:
    rewrite_network(store.path / FILE, lambda _, record: record.update(change))
    with pytest.raises(DatastoreError, match="knnmt train-gate"):
        TrainedGate.read(store)
    assert len(problems(store)) == 1


@pytest.mark.parametrize(
    "tensors",
    [
        {"mean": torch.zeros(32)},
        {"mean": torch.tensor(1.0)},
        {"mean": torch.zeros(33, 1)},
        {"mean": torch.zeros(33).half()},
        {"mean": torch.zeros(33).bfloat16()},
        {"mean": None},
        {"scale": torch.full((33,), float("nan"))},
        {"layers.0.weight": torch.zeros(128, 1)},
        {"layers.0.weight": torch.zeros(128, 33, dtype=torch.int32)},
        {"layers.3.bias": torch.full((128,), float("inf"))},
        {"layers.99.bias": torch.zeros(3)},
        {"mean": torch.zeros(40), "scale": torch.ones(40), "layers.0.weight": torch.zeros(128, 40)},
    ],
    ids=lambda tensors: "-".join(tensors),
)
def test_gates_with_other_tensors_are_refused(store: Datastore, tensors: dict[str, torch.Tensor | None]) -> None:

    def replaced(found: dict[str, torch.Tensor], _: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if tensor is None:
                del found[name]
            else:
                found[name] = tensor

    # NumPy has no bfloat16, from which a checksum could be made.
    as_numbers = all(each is None or each.dtype != torch.bfloat16 for each in tensors.values())
    rewrite_network(store.path / FILE, replaced, signed=as_numbers)
    with pytest.raises(DatastoreDamagedError, match="knnmt train-gate"):
        TrainedGate.read(store)
    assert len(problems(store)) == 1


def test_a_gate_that_is_no_regular_file_is_not_read(store: Datastore) -> None:
    path = store.path / FILE
    ways: list[Callable[[], None]] = [lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path)]
    for put_there in ways:
        path.unlink()
        put_there()
        with pytest.raises(DatastoreDamagedError, match=r"it is a link|not a regular file"):
            TrainedGate.read(store)
        assert len(problems(store)) == 1


def test_the_record_of_an_index_is_looked_at(store: Datastore) -> None:
    path = store.path / "indexes" / "index.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    (problem,) = problems(store)
    assert "checksum does not fit" in problem
