"""`knnmt train-gate`, and translating with what it leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.datastore.store import Datastore
from knnmt.errors import InputError, SettingError
from knnmt.retrieval.gate import FILE, TrainedGate
from support.commands import run
from support.datastore_pairs import development_file

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture
def store(built_store: Callable[[int], Path], tmp_path: Path) -> Path:
    return shutil.copytree(built_store(40), tmp_path / "own.store")


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    return development_file(tmp_path / "dev.tsv", 40)


def weights_of(store: Path) -> list[float]:
    found = TrainedGate.read(Datastore.open(store)).network.state_dict()
    return [number for each in found.values() for number in each.flatten().tolist()]


def test_a_gate_is_trained_reported_and_used(store: Path, dev: Path, tiny_checkpoint: Path) -> None:
    model = ["--model", str(tiny_checkpoint)]
    translate = ["translate", "-d", str(store), *model, "--beam", "1", "--max-tokens", "8", "--gate", "0.25"]
    with pytest.raises(SettingError, match="knnmt train-gate"):
        run(*translate)
    said = run(
        "train-gate", store, "--dev", dev, *model, "--features", "confidence, entropy", "--epochs", "3", "--k", "5"
    )
    assert "known       3 of 43 pairs" in said
    assert "epoch  training  validation\n    1  " in said
    lines = {line[:34].strip(): line[34:].split() for line in said.splitlines()}
    assert float(lines["the model alone"][0]) > float(lines["fading λ"][0])
    worse = float(lines["the gate's λ, every step searched"][0]) > float(lines["the model alone"][0])
    assert ("this gate is worse than no memory at all" in said) == worse
    rows = [line for line in said.splitlines() if line.startswith(("0.25: λ", "0.50: λ", "0.75: λ"))]
    assert [row.split(":")[1][:10].strip() for row in rows] == ["λ > α"] * 3 + ["λ > 1 - α"] * 3
    searched = [float(row.split("%")[0].split()[-1]) for row in rows]
    assert searched[:3] == sorted(searched[:3], reverse=True) == searched[:2:-1]
    gate = TrainedGate.read(Datastore.open(store))
    assert (gate.record.features, gate.record.k, gate.record.seed) == (("confidence", "entropy"), 5, 0)
    assert run(*translate).strip()
    assert f"gate        {FILE}" in run("inspect", store)


def test_a_gate_that_was_better_stays(store: Path, dev: Path, tiny_checkpoint: Path) -> None:
    train = ["train-gate", str(store), "--dev", str(dev), "--model", str(tiny_checkpoint)]
    assert "the earlier gate" not in run(*train, "--epochs", "30")
    before = (store / FILE).read_bytes()
    said = run(*train, "--epochs", "1")
    rows = {line[:36].strip(): line[36:].split() for line in said.splitlines()}
    new, old = (float(rows[f"{name}"][0]) for name in ("the gate's λ, every step searched", "λ of the earlier gate"))
    assert old < new
    assert f"kept        {store / FILE} unchanged, because it loses less" in said
    assert (store / FILE).read_bytes() == before
    run(*train, "--epochs", "1", "--l1", "0.2")  # another end, which losses alone do not tell
    assert (store / FILE).read_bytes() != before


def test_an_interruption_leaves_the_gate_that_was_there(
    store: Path, dev: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ["train-gate", str(store), "--dev", str(dev), "--model", str(tiny_checkpoint), "--epochs", "2"]
    run(*train, "--no-save")
    assert not (store / FILE).exists()
    run(*train, "--all-dev")
    first = weights_of(store)
    (store / FILE).unlink()
    run(*train, "--all-dev")
    assert weights_of(store) == pytest.approx(first, abs=1e-4)  # the same seed, up to what the CPU rounds
    before = (store / FILE).read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("knnmt.adapting.gate_training.train_gate", interrupted)
    assert "the store keeps the gate it had" in run(*train, expected=130)
    assert (store / FILE).read_bytes() == before
    assert not list(store.glob(f".{FILE}*"))


def test_what_cannot_work_is_said_at_once(store: Path, dev: Path, tiny_checkpoint: Path) -> None:
    with pytest.raises(SettingError, match="there is no gate input 'colour'"):
        run("train-gate", store, "--dev", dev, "--features", "colour", "--model", str(tiny_checkpoint))
    dev.write_text("Satz 300\tline 300\n", encoding="utf-8")
    with pytest.raises(InputError, match="too few"):
        run("train-gate", store, "--dev", dev, "--all-dev")
