"""What a verb tells people to run works as it is printed, with a store whose name a shell must see quoted."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
_QUOTED = re.compile(r"`knnmt ([^`]+)`")


def run(arguments: Sequence[str | Path]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False, input="Satz 3\n")
    assert done.exit_code == 0, f"{arguments}: {done.output}"
    return done.output


def follow(said: str) -> list[str]:
    """Run every command that was printed; the verbs of those, in order."""
    assert not re.search(r"\bknnmt [a-z]", _QUOTED.sub("", said)), "a command that nobody can tell from the sentence"
    verbs = []
    for found in _QUOTED.findall(said):
        words = shlex.split(found)
        run(words)
        verbs.append(words[0])
    return verbs


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with the files that placeholders in advice would be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("knnmt.adapting.tune.CACHE_PAIRS", 1)
    Path("MEMORY").write_text("Abbrechen\tCancel\n", encoding="utf-8")
    for name, pairs in {"own.tsv": some_pairs(120), "dev.tsv": some_pairs(40, start=400)}.items():
        lines = "".join(f"{each.source}\t{each.target}\n" for each in pairs)
        Path(name).write_text(lines, encoding="utf-8")


@pytest.fixture
def model(tiny_checkpoint: Path) -> list[str]:
    return ["--model", str(tiny_checkpoint)]


@pytest.fixture
def store(model: list[str]) -> Path:
    store = Path("our own.store")
    run(["build", "own.tsv", "-o", store, "--no-estimate", *model])
    return store


def test_after_adapting(model: list[str]) -> None:
    said = run(["adapt", "own.tsv", "-o", "our own.store", "--sample", "0", *model])
    assert follow(said) == ["translate"]


def test_after_changing_a_store_with_an_index(store: Path, model: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    faiss_or_skip()
    run(["index", store, "--kind", "flat", *model])
    monkeypatch.setattr("knnmt.index.saved.lags", lambda _: True)
    assert follow(run(["add", store, "MEMORY"])) == ["index"]


def test_after_removing_and_replacing(store: Path) -> None:
    assert follow(run(["remove", store, "--match", "line 7"])) == ["compact"]
    said = run(["replace", store, "own.tsv", "--target-column", "1", "--source-column", "2"])  # all of it is new
    assert follow(said) == []
    Path("MEMORY").write_text("Satz 8\tline the eighth\n", encoding="utf-8")
    said = run(["replace", store, "MEMORY"])
    shown = run(["inspect", store])
    assert follow(said) == follow(shown) == ["compact"]


def test_after_training_a_gate_and_in_what_is_shown(store: Path, model: list[str]) -> None:
    said = run(["train-gate", store, "--dev", "dev.tsv", "--epochs", "1", "--k", "5", *model])
    assert follow(said) == ["translate"]
    assert follow(run(["inspect", store])) == ["translate"]
