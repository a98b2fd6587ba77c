"""`knnmt explain` as people use it, with a tiny random model."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from knnmt import Translator
from knnmt.cli import app, explain, translate
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError, KnnmtError, NotADatastoreError, SettingError, StorageError
from support.datastore_pairs import some_pairs

SETTINGS = ["--k", "4", "--lambda", "0.6", "--temperature", "10", "--beam", "2"]


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("explain") / "own.store", some_pairs(12), tiny).path


@pytest.fixture
def command(store: Path, tiny_checkpoint: Path) -> list[str]:
    return ["explain", "-d", str(store), "-m", str(tiny_checkpoint), "--device", "cpu", *SETTINGS]


def run(command: list[str], *more: str | Path, stdin: str = "", **environment: str) -> Result:
    return CliRunner().invoke(app, [*command, *map(str, more)], input=stdin, env={"COLUMNS": "120", **environment})


def test_texts_are_translated_as_translate_does_and_explained(
    command: list[str], store: Path, tiny_checkpoint: Path
) -> None:
    done = run(command, "Satz 3 ja.", "Satz 8")
    assert done.exit_code == 0, done.output
    translator = Translator(tiny_checkpoint, device="cpu", datastore=store)
    known = {"k": 4, "interpolation_weight": 0.6, "temperature": 10.0}
    shown = done.output.split("─" * 120)
    assert len(shown) == 2
    for text, part in zip(["Satz 3 ja.", "Satz 8"], shown, strict=True):
        found = translator.translate(text, beam=2, evidence=True, exact_matches="ignore", **known)  # type: ignore[call-overload]
        assert f"source   {text}\n" in "".join(f"{line.rstrip()}\n" for line in part.splitlines())
        largest = max(found.tokens, key=lambda token: token.evidence.share)
        assert largest.evidence.share > 0.3
        assert "own.tsv#" in part
    assert run(command, "--text", "Satz 3 ja.", "-t", "Satz 8").output == done.output  # as `translate` takes them
    full = run(command, "Satz 3 ja.", "--full")
    assert full.output.count("own.tsv#") > 2 * shown[0].count("own.tsv#")


def test_a_text_translated_twice_is_warned_of_once(command: list[str]) -> None:
    done = run(command, "Satz 3 ja.", "Satz 8", "--max-tokens", "3")
    assert done.exit_code == 0, done.output
    for text in ("Satz 3 ja.", "Satz 8"):
        assert done.stderr.count(f"may be cut off: {text!r}") == 1


def test_a_text_without_a_translation_is_said_and_the_others_are_explained(
    overflowing_checkpoint: Path, tmp_path: Path
) -> None:
    translator = Translator(overflowing_checkpoint, device="cpu")
    made = Datastore.build(tmp_path / "own.store", some_pairs(12), translator.engine).path
    command = ["explain", "-d", str(made), "-m", str(overflowing_checkpoint), "--device", "cpu", *SETTINGS]
    done = run(command, "aßc", "Satz 8")
    assert done.exit_code == 1
    shown = done.stdout.split("─" * 120)
    assert "no translation of 'aßc'" in shown[0]
    assert "own.tsv#" in shown[1]
    assert done.stderr.count("no translation of 'aßc'") == 1


def test_files_and_standard_input_are_read_line_by_line(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Satz 3 ja.\n\n  \nSatz 8\n", encoding="utf-8")
    from_file = run(command, "--file", tmp_path / "in.txt")
    assert from_file.output.count("source ") == 2
    assert run(command, stdin="Satz 3 ja.\n\nSatz 8\n").output == from_file.output
    assert run(command, "Satz 3 ja.", "Satz 8").output == from_file.output


def test_a_page_is_written_whole_and_says_how_it_was_made(command: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(command, "Satz 3 ja.", "Satz 8", "--html", page)
    assert done.stdout == f"wrote {page}: 2 segments; open it in a browser\n"
    text = page.read_text(encoding="utf-8")
    assert text.count("<article") == 2
    assert "|beam:2|" in text
    assert "|k:4|lambda:0.6|T:10|" in text
    assert "shown</p>" not in text
    assert run(command, "Satz 3 ja.", "Satz 8", "--html", page, "--neighbours", "1").exit_code == 0
    assert " shown</p>" in page.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("old", encoding="utf-8")

    def refuse(self: Path, *_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    done = run(command, "Satz 3 ja.", "--html", page)
    assert isinstance(done.exception, StorageError)
    assert page.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_takes_the_place_of_a_file_and_of_nothing_else(command: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run(command, "Satz 3 ja.", "--html", pipe)
    assert isinstance(done.exception, SettingError)
    assert "found a device or a pipe" in str(done.exception)
    assert pipe.is_fifo()
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old", encoding="utf-8")
    link.symlink_to(page)
    assert run(command, "Satz 3 ja.", "--html", link).exit_code == 0
    assert link.is_symlink()
    assert "<article" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (["x", "--file", "y.txt"], SettingError, "found both"),
        (["x", "--html", "p.html", "--full"], SettingError, "--full is for the terminal"),
        (["x", "--neighbours", "2"], SettingError, "--neighbours is for a page"),
        (["x", "--html", "nowhere/p.html"], SettingError, "a directory that exists"),
        ([" ", ""], InputError, "expected a text to explain, found none"),
    ],
)
def test_what_cannot_be_done_is_said(
    command: list[str], more: list[str], error: type[KnnmtError], message: str
) -> None:
    done = run(command, *more)
    assert isinstance(done.exception, error)
    assert message in str(done.exception)
    assert not Path("p.html").exists()


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [
        ("--lambda", "1.5", SettingError, "--lambda must be at least 0 and below 1, got 1.5"),
        ("-d", "nowhere", NotADatastoreError, "nowhere"),
    ],
)
def test_what_an_option_cannot_be_is_said(
    command: list[str], option: str, value: str, error: type[KnnmtError], message: str
) -> None:
    command[command.index(option) + 1] = value
    done = run(command, "x")
    assert isinstance(done.exception, error)
    assert message in str(done.exception)


def test_all_that_translate_can_be_told_of_a_memory_explain_can_be_told_too() -> None:
    offered = set(inspect.signature(translate.translate).parameters)
    known = set(inspect.signature(explain.explain).parameters)
    of_output = {"output", "n_best", "scores", "jsonl", "batch_size", "batch_tokens", "window", "timings"}
    of_documents = {"output_directory", "retranslate", "ignore_stated_languages", "check", "html"} - known
    of_matches = {"exact_matches", "match_threshold", "review"}  # what is explained is decoded
    of_guarding = {"glossary"}
    assert offered - known == of_output | of_documents | of_matches | of_guarding | {"evidence", "match"}
