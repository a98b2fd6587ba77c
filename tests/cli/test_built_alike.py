"""`knnmt build`, Python's `build` and `Datastore.build` make the same store, file by file: content and settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt import Datastore, SegmentPair, build
from knnmt.cli import app
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from support.checkpoints import own_engine
from support.copied_stores import files_of
from support.datastore_pairs import some_pairs


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory.tsv"
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in some_pairs(60)), encoding="utf-8")
    return path


def pairs_of(memory: Path) -> Iterator[SegmentPair]:
    return read_files([memory], ReadingConfig(), ReadingReport())


def built_by_command(memory: Path, checkpoint: Path, output: Path, *more: str) -> dict[str, bytes]:
    given = ["build", str(memory), "-o", str(output), "-m", str(checkpoint), "--device", "cpu", *more]
    ran = CliRunner().invoke(app, given)
    assert ran.exit_code == 0, ran.output
    return files_of(output)


def test_the_command_and_the_call_make_the_same_store(memory: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    by_command = built_by_command(memory, tiny_checkpoint, tmp_path / "a" / "s")
    engine = own_engine(str(tiny_checkpoint))
    built = build(str(memory), str(tmp_path / "c" / "s"), model=tiny_checkpoint, device="cpu")
    assert isinstance(built.store, Datastore)
    assert files_of(built.store.path) == by_command
    read, made_of, settings = str(built).splitlines()
    assert settings.startswith("settings   k:8|")
    assert read == "read       60 pairs from 1 file"
    assert made_of.startswith(f"built      {built.store.path}: 60 sentences, ")
    of_pairs = build(pairs_of(memory), tmp_path / "d" / "s", model=engine)
    assert files_of(of_pairs.store.path) == by_command
    assert {"manifest.json", "settings.json"} < by_command.keys()


def test_so_they_do_without_settings(memory: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    engine = own_engine(str(tiny_checkpoint))
    by_command = built_by_command(memory, tiny_checkpoint, tmp_path / "a" / "s", "--no-estimate")
    made = Datastore.build(tmp_path / "b" / "s", pairs_of(memory), engine)
    assert files_of(made.path) == by_command
    called = build(pairs_of(memory), tmp_path / "c" / "s", model=engine, estimate=False)
    assert files_of(called.store.path) == by_command


def test_a_single_pair_is_enough(tiny_checkpoint: Path, tmp_path: Path) -> None:
    engine = own_engine(str(tiny_checkpoint))
    made = Datastore.build(tmp_path / "s", [SegmentPair("Drucken", "Print", "own#1")], engine)
    assert made.add([SegmentPair("Abbrechen", "Cancel", "own#2")], engine).added_sentences == 1
