"""`knnmt evaluate` as people use it, with a tiny random model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from typer.testing import CliRunner

from knnmt import TranslationSettings, evaluate
from knnmt.cli import app
from knnmt.corpus.writing import write_tsv
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import COMET_RECIPE, CometError, SettingError
from support import warm
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
SETTINGS = "k=4,lambda=0.6,temperature=10"


def knnmt(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "knnmt", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return warm.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def place(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store of twelve pairs, and a text of which it knows three."""
    place = tmp_path_factory.mktemp("evaluation")
    Datastore.build(place / "own.store", some_pairs(12), tiny)
    write_tsv(place / "test.tsv", some_pairs(8, start=9))
    for column, name in enumerate(["test.de", "test.en"]):
        texts = [(pair.source, pair.target)[column] for pair in some_pairs(8, start=9)]
        (place / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return place


def test_from_text_to_report_and_on_from_there(place: Path, tiny_checkpoint: Path) -> None:
    output = place / "out"
    command: list[str | Path] = ["evaluate", "-m", tiny_checkpoint, "--beam", "2", "--device", "cpu", "-o", output]
    command += ["--system", f"own={place / 'own.store'},{SETTINGS}"]
    done = knnmt(*command, "--source", place / "test.de", "--reference", place / "test.en")
    assert done.returncode == 0, done.stderr
    assert "text     8 segments of test.de and test.en: all of the text\n" in done.stdout
    assert f"Warning: the source of 3 of 8 segments is in {place / 'own.store'} (3 with the same" in done.stdout
    assert COMET_RECIPE in done.stdout

    report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in report["systems"]] == ["base", "own"]
    references = [pair.target for pair in some_pairs(8, start=9)]
    for each in report["systems"]:
        hypotheses = (output / f"{each['name']}.txt").read_text(encoding="utf-8").split("\n")[:-1]
        assert each["bleu"]["value"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
        assert each["chrf"]["value"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    in_python = evaluate(
        (str(place / "test.de"), place / "test.en"),
        systems=[f"own={place / 'own.store'},{SETTINGS}"],
        settings=TranslationSettings(beam=2),
        model=tiny_checkpoint,
        device="cpu",
    )
    same = in_python.as_json()
    for name in ("text", "segments", "known", "beam", "batch_size", "remarks"):
        assert same[name] == report[name]
    for mine, its in zip(same["systems"], report["systems"], strict=True):
        for name in ("name", "signature", "bleu", "chrf", "tokens", "searches"):
            assert mine[name] == its[name]
    assert str(in_python) == in_python.as_text()
    assert "| own |" in (output / "report.md").read_text(encoding="utf-8")
    assert (output / "segments.tsv").read_text(encoding="utf-8").count("\n") == 8

    elsewhere = place / "reports"
    again = knnmt(*command, "--pairs", place / "test.tsv", "--skip-known", "--json", elsewhere / "r.json", "--no-base")
    assert again.returncode == 0, again.stderr
    report = json.loads((elsewhere / "r.json").read_text(encoding="utf-8"))
    assert report["left_out"] == {"its source is in a store": 3}
    assert report["segments"] == 5
    assert [(each["name"], each["reused"]) for each in report["systems"]] == [("own", False)]
    assert "Warning" not in again.stdout


def test_what_was_measured_is_printed_when_comet_fails(place: Path, tiny_checkpoint: Path) -> None:
    python = place / "python"
    answers = """printf '{"version": "9"}\\n'; read request; exit 3"""
    python.write_text(f"#!/bin/sh\n{answers}\n", encoding="utf-8")
    python.chmod(0o755)
    done = knnmt(
        *("evaluate", "-m", tiny_checkpoint, "--beam", "1", "--device", "cpu", "--pairs", place / "test.tsv"),
        *("--half", "report", "--comet-python", python),
    )
    assert done.returncode == 1
    assert done.stderr.endswith("knnmt: error: COMET failed; the report says why\n")
    assert "the half for reports" in done.stdout
    assert "COMET not measured: the COMET process of" in done.stdout
    assert "base" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--source FILE and --reference FILE, or --pairs FILE"),
        (["-s", "a"], "--source FILE and --reference FILE, or --pairs FILE"),
        (["--pairs", "test.tsv", "--no-base"], "--no-base leaves no system"),
        (["--pairs", "test.tsv", "-d", "a/it", "-d", "b/it"], "two systems are called 'it'"),
        (["--pairs", "test.tsv", "-d", "/"], "a system cannot be called ''"),
        (["--pairs", "test.tsv", "--half", "both"], "half must be one of"),
        (["--pairs", "test.tsv", "--comet-model", "m"], "--comet-model needs --comet-python. COMET runs in its own"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_loaded(place: Path, arguments: list[str], message: str) -> None:
    given = [str(place / each) if each == "test.tsv" else each for each in arguments]
    done = CliRunner().invoke(app, ["evaluate", *given])
    assert isinstance(done.exception, SettingError)
    assert message in str(done.exception)


def test_an_environment_for_comet_that_is_not_there_is_told_at_once(place: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", "--pairs", str(place / "test.tsv"), "--comet-python", "/no/python"])
    assert isinstance(done.exception, CometError)
    assert COMET_RECIPE in str(done.exception)


def test_a_place_that_cannot_be_written_is_told_before_translating(place: Path, tiny_checkpoint: Path) -> None:
    done = knnmt(
        *("evaluate", "-m", tiny_checkpoint, "--device", "cpu", "--pairs", place / "test.tsv"),
        *("-o", place / "test.de" / "out"),
    )
    assert done.returncode == 1
    assert "cannot be written: Not a directory" in done.stderr
