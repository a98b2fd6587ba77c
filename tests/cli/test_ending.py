"""How commands end: a lost output is one line and a status, and what nobody foresaw is no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from knnmt.cli import app
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from support import warm
from support.datastore_pairs import some_pairs

# A random model ends no sentence early, so that its beams take long.
_FEW_BEAMS = """
from knnmt.cli import main
from knnmt.adapting import tune as tuning
tuning.CACHE_PAIRS = 1
main()
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Satz 4\nSatz 5\n", encoding="utf-8")
    return path


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Path:
    return Datastore.build(tmp_path / "own.store", some_pairs(20), tiny).path


def _memory(path: Path, count: int, start: int = 0) -> Path:
    pairs = some_pairs(count, start=start)
    path.write_text("".join(f"{each.source}\t{each.target}\n" for each in pairs), encoding="utf-8")
    return path


def knnmt(*arguments: str | Path, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A command with what the shell makes of its streams."""
    command = [sys.executable, "-m", "knnmt", *map(str, arguments)]
    start = subprocess.run if shell or environment else warm.run
    return start(
        ["bash", "-c", f'"$@" {shell}', "bash", *command] if shell else command,
        capture_output=True,
        text=True,
        input="Satz 4\n",
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("every", [pytest.param(True, marks=pytest.mark.soak), False], ids=["every", "some"])
def test_every_verb_says_that_its_output_is_full(
    tiny_checkpoint: Path, store: Path, text: Path, tmp_path: Path, every: bool
) -> None:
    model = ["-m", str(tiny_checkpoint)]
    memory, more = _memory(tmp_path / "memory.tsv", 60), _memory(tmp_path / "more.tsv", 24, start=100)
    (tmp_path / "reference.txt").write_text("line 4\nline 5\n", encoding="utf-8")
    twin = shutil.copytree(store, tmp_path / "twin")
    given: dict[str, list[str | Path]] = {
        "translate": [text, *model],
        "explain": ["-d", store, "Satz 4", *model],
        "adapt": [memory, "-o", tmp_path / "adapted", "--dev", more, "--sample", "0", *model],
        "build": [memory, "-o", tmp_path / "built", *model],
        "add": [shutil.copytree(store, tmp_path / "grown"), more, *model],
        "replace": [shutil.copytree(store, tmp_path / "corrected"), more, *model],
        "remove": [store, "--origin", "own.tsv#3", "--dry-run"],
        "compact": [shutil.copytree(store, tmp_path / "compacted")],
        "merge": [store, twin, "-o", tmp_path / "merged", "--no-estimate"],
        "split": [store, "--pairs", "10", "-o", tmp_path / "parts", "--no-estimate"],
        "shard-set": [store, twin, "-o", tmp_path / "set", *model],
        "copy": [store, f"file://{tmp_path}/storage"],
        "reduce": [store, "-o", tmp_path / "reduced", "--dim", "8"],
        "prune": [store, "-o", tmp_path / "pruned"],
        "index": [store, "--kind", "exact", *model],
        "tune": [store, "--dev", more, "--pairs", "4", *model],
        "train-gate": [store, "--dev", more, "--pairs", "4", "--epochs", "1", *model],
        "train-combiner": [store, "--dev", more, "--pairs", "4", "--updates", "1", *model],
        "inspect": [store],
        "verify": [store],
        "export": [store, "-o", tmp_path / "out.tmx"],
        "evaluate": ["-s", text, "--reference", tmp_path / "reference.txt", "-d", store, *model],
        "bench": ["-s", text, *model, "--rounds", "1", "--batch-sizes", "1", "--threads", "1", "--beam", "1"],
        "reproduce": ["-o", tmp_path, "--help"],  # which goes the same way as what takes minutes
        "serve": ["--help"],  # which would not end
        "serve-key": ["--help"],
        "models": [],
        "--help": [],
        "--version": [],
    }
    assert {each.name for each in app.registered_commands} <= given.keys()
    some = ("translate", "build", "inspect", "export", "evaluate", "models", "--help")
    for verb, arguments in given.items():
        if not every and verb not in some:
            continue
        command = [sys.executable, "-c", _FEW_BEAMS, verb, *map(str, arguments)]
        with Path("/dev/full").open("wb") as full:
            done = warm.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=120)
        said = done.stderr.splitlines()
        beside = [line for line in said if not line.startswith(("knnmt: warning: ", "knnmt: system "))]
        assert (done.returncode, len(beside)) == (1, 1), (verb, said)
        assert beside[0].startswith("knnmt: error: ")
        assert "cannot be written: No space left on device" in beside[0]


@pytest.mark.parametrize("arguments", [["inspect", "STORE"], ["translate", "--help"]])
def test_an_output_that_is_closed_or_no_longer_read(arguments: list[str], store: Path) -> None:
    command = [str(store) if each == "STORE" else each for each in arguments]
    closed = knnmt(*command, shell=">&-")
    assert (closed.returncode, closed.stderr.count("\n")) == (1, 1)
    assert "standard output cannot be written: Bad file descriptor" in closed.stderr
    left = knnmt(*command, shell='| true; exit "${PIPESTATUS[0]}"')
    assert (left.returncode, left.stderr) == (141, "")


def test_a_file_that_is_full_is_said_once(tiny_checkpoint: Path, text: Path) -> None:
    done = knnmt("translate", text, "-m", tiny_checkpoint, "-o", "/dev/full")
    assert done.returncode == 1
    [error] = [line for line in done.stderr.splitlines() if not line.startswith("knnmt: warning: ")]
    assert "the output cannot be written: No space left on device. 0 lines are written" in error


@pytest.mark.soak
def test_closed_streams_hold_up_nothing(tiny_checkpoint: Path, text: Path, tmp_path: Path) -> None:
    done = knnmt("translate", text, "-m", tiny_checkpoint, "-o", tmp_path / "out", shell="<&- >&- 2>&-")
    assert done.returncode == 0
    assert (tmp_path / "out").read_text(encoding="utf-8").count("\n") == 2
    assert knnmt("models", shell="2>/dev/full").returncode == 0
    unread = knnmt("translate", "-m", tiny_checkpoint, shell="<&-")
    assert (unread.returncode, unread.stdout, unread.stderr.count("\n")) == (1, "", 1)
    assert "Bad file descriptor" in unread.stderr


def test_what_nobody_foresaw_is_told_without_a_traceback(tmp_path: Path) -> None:
    code = (
        "import sys; from knnmt.cli import main, models\n"
        "def fails(): raise RuntimeError('two\\nlines \\x1b]0;title\\x07')\n"
        "models.shipped_models = fails\nmain()"
    )

    def run(*arguments: str, **environment: str) -> list[str]:
        command = [sys.executable, "-c", code, *arguments]
        known = {**os.environ, **environment}
        done = warm.run(command, capture_output=True, text=True, env=known, timeout=60, light=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert "\x1b" not in done.stderr
        return str(done.stderr).splitlines()

    plain = run("models")
    assert plain[0] == "knnmt: error: RuntimeError: two↵lines ␛]0;title␇"
    assert plain[1].startswith("knnmt: this should not have happened. Please report it")
    assert len(plain) == 2
    for told in (run("--traceback", "models"), run("models", KNNMT_TRACEBACK="1")):
        assert told[0] == "Traceback (most recent call last):"
        assert told[-2:] == plain


def test_what_fails_in_a_part_of_ones_own_is_not_to_be_reported(
    tiny_checkpoint: Path, store: Path, text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "def fails(step, neighbours): raise ValueError('mine')\ndef Mine(store, config, engine): return fails\n"
    (tmp_path / "part_that_fails.py").write_text(code, encoding="utf-8")
    decode: list[str | Path] = ["translate", "--exact-matches", "ignore", "-m", tiny_checkpoint, "-d", store]
    done = knnmt(*decode, "--combiner", "part_that_fails:Mine", text)
    assert (done.returncode, done.stdout) == (1, "")
    told = "knnmt: the error is in part_that_fails. `knnmt --traceback COMMAND...` shows where."
    assert done.stderr.splitlines()[-2:] == ["knnmt: error: ValueError: mine", told]


def test_an_interruption_while_the_code_is_read_has_no_traceback() -> None:
    script = """
import runpy, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "knnmt.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
runpy.run_module("knnmt", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_of_an_error_that_was_foreseen_a_traceback_can_be_had_too() -> None:
    done = knnmt("--traceback", "inspect", "nowhere")
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("knnmt: error: nowhere: there is no datastore.")


def test_memory_that_is_used_up_and_a_file_that_fails_are_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from knnmt.cli.ending import run

    def fails(error: BaseException) -> Any:
        def command() -> None:
            raise error

        return command

    assert run(fails(MemoryError())) == 1
    assert run(fails(PermissionError(13, "Permission denied", "own\x1bstore"))) == 1
    assert capsys.readouterr().err.splitlines() == [
        "knnmt: error: out of memory: the machine has no more, or the process has reached its limit",
        "knnmt: error: [Errno 13] Permission denied: 'own\\x1bstore'",
    ]
    assert [run(fails(each)) for each in (KeyboardInterrupt(), SystemExit(None), SystemExit(3), SystemExit("no"))] == [
        130, 0, 3, 1,
    ]  # fmt: skip
