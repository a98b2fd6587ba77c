"""Speed from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError, KnnmtError, SettingError
from knnmt.evaluation.systems import System
from knnmt_lab.commands import bench
from support import warm
from support.datastore_pairs import some_pairs
from support.processes import end_soon

pytestmark = pytest.mark.usefixtures("warm_systems")


def run(*arguments: str | Path) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Satz 4\n\nSatz 3 ja\nanders\n", encoding="utf-8")
    return path


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Path:
    return Datastore.build(tmp_path / "own.store", some_pairs(20), tiny).path


@pytest.mark.soak
def test_a_store_is_compared_with_the_model_alone(
    text: Path, store: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(bench, "load_average", lambda: 1e6)
    output = tmp_path / "new" / "speed"
    quick = ["--rounds", "1", "--batch-sizes", "3", "--sentences", "2", "--threads", "1", "--beam", "2"]
    said, beside = run("-s", text, "-d", store, "-m", tiny_checkpoint, "--device", "cpu", *quick, "-o", output)
    assert "1 thread, beam 2, 2 sentences of text.txt (sha256 " in said
    assert [line.split()[:2] for line in said.splitlines() if line.startswith(("base ", "own.store "))] == [
        ["base", "3"],
        ["own.store", "3"],
    ] * 2
    assert "warning: the machine is busy (load 1000000.0 on " in beside
    assert "knnmt: 2 sentences do not fill a batch of 3; take more\n" in beside
    assert f"knnmt: warning: 1 of 2 sentences are in {store}, " in beside
    names = ["ablation.png", "ablation.svg", "report.json", "report.md", "speed.png", "speed.svg"]
    assert sorted(path.name for path in output.iterdir()) == names
    told = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert list(told["signatures"]) == ["base", "own.store"]


def test_reports_are_written_where_nothing_can_draw(
    text: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    output = tmp_path / "speed"
    quick = ["--rounds", "1", "--batch-sizes", "1", "--sentences", "1", "--threads", "1", "--beam", "1"]
    said, beside = run("-s", text, "-m", tiny_checkpoint, "--device", "cpu", *quick, "-o", output)
    assert sorted(path.name for path in output.iterdir()) == ["report.json", "report.md"]
    assert said.endswith(f"written    {output}: report.md, report.json\n")
    assert "pip install 'knnmt[plots]'" in beside


def test_stores_are_named_by_their_directories_whatever_these_are_called(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[System] = []

    def stop(systems: list[System], *_: object) -> None:
        asked.extend(systems)
        raise SettingError("enough")

    monkeypatch.setattr(bench, "measure", stop)
    with pytest.raises(SettingError, match="enough"):
        run("-s", text, "-d", "x/base", "-d", "x/a=b,k=2")
    assert asked == [System("base"), System("base.store", Path("x/base")), System("a=b,k=2", Path("x/a=b,k=2"))]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--batch-sizes", "1,x"], SettingError, "expected numbers separated by commas"),
        (["--batch-sizes", "0"], SettingError, "at least 1"),
        (["--system", "s,kk=1"], SettingError, "no setting 'kk'"),
        (["-d", "/"], SettingError, "a system cannot be called ''"),
        (["--source", "empty.txt"], InputError, "found none"),
        (["--source", "absent.txt"], InputError, "absent.txt"),
        (["--output", "text.txt"], SettingError, "cannot make this directory"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    arguments: list[str], error: type[KnnmtError], message: str, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(text.parent)
    Path("empty.txt").write_text(" \n\n", encoding="utf-8")
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("it started"))
    with pytest.raises(error, match=message):
        run(*([] if "--source" in arguments else ["--source", "text.txt"]), *arguments)


def test_control_c_ends_every_process(text: Path, tiny_checkpoint: Path) -> None:
    command = [sys.executable, "-m", "knnmt", "bench", "-s", str(text), "-m", str(tiny_checkpoint)]
    command += ["--rounds", "1000000", "--threads", "1", "--device", "cpu", "--batch-sizes", "1"]
    command += ["--system", "base", "--system", "again=base"]
    with warm.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 60
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = [int(number) for number in children.read_text().split()]
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said, beside = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == ""
    assert "interrupted; no report is made" in beside
    assert "Traceback" not in beside
    assert len(workers) == 2
    assert end_soon(*workers)
