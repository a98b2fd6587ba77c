"""A store names a model; what it names is used where it is, and nothing goes to the network for it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.engine.checkpoint import NamedByStore, find_checkpoint
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import ModelNotFoundError
from knnmt.translator.translator import Translator

PAIRS = [SegmentPair(f"Datei {n} ist offen.", f"File {n} is open.", f"own.tsv#{n}") for n in range(12)]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[object]]:
    """Every attempt to reach another machine is noted, and fails the test."""
    from huggingface_hub import constants

    asked: list[object] = []

    def note(*arguments: Any, **_: Any) -> Any:
        asked.append(arguments)
        raise OSError("there is no network")

    monkeypatch.setattr(socket, "getaddrinfo", note)
    monkeypatch.setattr(socket.socket, "connect", note)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.chdir(tmp_path)
    yield asked
    assert asked == []


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Path:
    return named(tmp_path / "own.store", tiny, "someone/else")


def named(path: Path, engine: TransformerEngine, name: str) -> Path:
    """A store whose manifest names a model as somebody else wrote it."""
    if not path.exists():
        Datastore.build(path, PAIRS[:8], engine)
    replace(Datastore.open(path).manifest, model_name=name).write(path)
    return path


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory.tsv"
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS[8:]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["translate", "-d", "STORE"],
        ["explain", "-d", "STORE", "Text"],
        ["add", "STORE", "MEMORY"],
        ["index", "STORE"],
        ["tune", "STORE", "--dev", "MEMORY", "--all-dev"],
        ["train-gate", "STORE", "--dev", "MEMORY", "--all-dev"],
        ["train-combiner", "STORE", "--dev", "MEMORY", "--all-dev"],
    ],
    ids=lambda command: str(command[0]),
)
def test_a_name_of_the_hub_has_to_be_typed(command: list[str], store: Path, memory: Path) -> None:
    given = {"STORE": str(store), "MEMORY": str(memory)}
    done = CliRunner().invoke(app, [given.get(each, each) for each in command], input="Text\n")
    assert isinstance(done.exception, ModelNotFoundError), done.output
    assert "give it yourself: --model someone/else;" in str(done.exception)


def test_looking_into_a_store_fetches_nothing(store: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", str(store)])
    assert done.exit_code == 0
    assert "model       someone/else" in done.stdout
    assert "the model's tokenizer is missing" in done.stdout


def test_the_error_comes_in_python_too_and_its_advice_can_be_copied(store: Path, tiny: TransformerEngine) -> None:
    with pytest.raises(ModelNotFoundError, match="does not download a model because a store names it"):
        Translator(datastore=store)
    with pytest.raises(ModelNotFoundError, match="--model 'someone/else; rm x'"):
        Translator(datastore=named(store, tiny, "someone/else; rm x"))


def test_what_is_here_is_used(tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A directory, and a model that was once fetched by its name."""
    path = named(tmp_path / "own.store", tiny, str(tiny_checkpoint))
    assert Translator(datastore=path, device="cpu").engine.name == str(tiny_checkpoint)
    repository = tmp_path / "hub" / "models--someone--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copytree(tiny_checkpoint, repository / "snapshots" / ("0" * 40))
    named(path, tiny, "someone/small")
    assert Translator(datastore=path, device="cpu").engine.name == "someone/small"
    assert "«" in CliRunner().invoke(app, ["inspect", str(path)]).stdout


def test_a_copy_of_the_shipped_model_needs_no_name(engine: TransformerEngine, tmp_path: Path) -> None:
    path = named(tmp_path / "own.store", engine, "moved/away")
    assert Translator(datastore=path, device="cpu").engine.name == "de-en"


@pytest.mark.parametrize("name", ["//host/share", "\\\\host\\share", "a/b/c", "", ".", "../..//x"])
def test_a_place_on_another_machine_is_not_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith(("//", "\\")):
        monkeypatch.setattr(Path, "is_dir", lambda *_: True)
    if name in ("", "."):  # the working directory, which is no checkpoint
        assert find_checkpoint(NamedByStore(name)) == Path()
    else:
        with pytest.raises(ModelNotFoundError, match="not on this machine"):
            find_checkpoint(NamedByStore(name))
