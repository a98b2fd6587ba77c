"""Reproducing the paper from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.commands import refused, succeeds
from support.index_stores import faiss_or_skip
from support.made_domains import write_domains

faiss_or_skip()
pytest.importorskip("sacrebleu")


def test_from_text_to_report_in_one_command_or_two(tmp_path: Path, tiny_checkpoint: Path) -> None:
    data, output = write_domains(tmp_path / "data"), tmp_path / "out"
    command: list[str | Path] = [
        "reproduce",
        "--data",
        data,
        "-o",
        output,
        "--model",
        tiny_checkpoint,
        "--sentences",
        "2",
        "--no-speed",
    ]
    command += ["--domains", "plain", "--device", "cpu", "--systems"]
    said = succeeds(*command, "base,B/knn", "--produce-only")
    assert "] plain/B/knn: " in said
    assert not (output / "report.md").exists()
    shutil.rmtree(output / "stores")
    said = succeeds("reproduce", "-o", output, "--report-only")
    assert said.splitlines() == ["plain: 2 rows scored", f"report     {output}/report.md"]
    report = (output / "report.md").read_text(encoding="utf-8")
    assert "- plain, B/knn: `model:" in report
    titles = [line for line in report.splitlines() if line.startswith("## ")]
    assert titles == [  # no table whose own rows were not run, such as pruning
        *("## Main results, BLEU", "## Main results, chrF", "## The effect of each choice, BLEU"),
        *("## Hyper-parameters: k / λ / T", "## Signatures"),
    ]
    said = succeeds(*command, "A/knn", "--minutes", "0")
    assert said.splitlines()[-1].startswith("time is up: ")


def test_mistakes_of_reproducing_are_explained(tmp_path: Path) -> None:
    data = write_domains(tmp_path / "data")
    assert "--data is missing" in refused("reproduce", "-o", tmp_path / "out")
    assert "give one of" in refused("reproduce", "-o", tmp_path / "out", "--produce-only", "--report-only")
    given = ("reproduce", "--data", data, "-o", tmp_path / "out")
    assert "expected numbers separated by commas" in refused(*given, "--batch-sizes", "1,many")
