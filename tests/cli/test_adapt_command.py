"""From memories to a store that is ready, in one command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import knnmt
from knnmt import Datastore, FilterConfig
from knnmt.errors import SettingError
from knnmt.evaluation.holding_out import plan
from support.commands import refused, succeeds
from support.copied_stores import files_of
from support.datastore_pairs import some_pairs


def write(path: Path, count: int, start: int = 0) -> Path:
    lines = "".join(f"{each.source}\t{each.target}\n" for each in some_pairs(count, start=start))
    path.write_text(lines, encoding="utf-8")
    return path


def test_one_command_from_memories_to_translations(
    tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.evaluation.tuning_steps.CACHE_PAIRS", 1)
    for module in ("holding_out", "adapting"):
        monkeypatch.setattr(f"knnmt.evaluation.{module}.MIN_HELD_OUT", 12)
    memories = write(tmp_path / "one.tsv", 100), write(tmp_path / "two.tsv", 65, start=95)  # the last five twice
    store, model = tmp_path / "own.store", ("--model", str(tiny_checkpoint))
    said = succeeds("adapt", *memories, "-o", store, "--sample", "2", "--drop-duplicates", *model)
    lines = said.splitlines()
    assert lines[:2] == ["read       165 pairs from 2 files", "left out   5  duplicate"]
    assert " to report, of 160, " in lines[2]
    assert [line[:11].strip() for line in lines[2:]] == [
        "held out",
        "built",
        "tuned",
        "compared",
        "perplexity",
        "BLEU",
        "put in",
        "adapted",
        "next",
        "",
    ]
    assert lines[-2] == (
        f"next       `knnmt translate -m {tiny_checkpoint} -d {store} --text TEXT` translates with the store"
    )
    assert lines[-1] == f"           `knnmt replace {store} -m {tiny_checkpoint} MEMORY` inserts corrections"
    assert len(list(Datastore.open(store).pairs())) == 160
    heard: list[str] = []
    pairs = knnmt.read_memories(memories, filters=FilterConfig(duplicates=False))
    made = knnmt.adapt(pairs, tmp_path / "py.store", sample=2, model=tiny_checkpoint, tell=heard.append)
    assert heard == lines[2:-3]
    assert files_of(made.store.path) == files_of(store)
    assert str(made).splitlines()[1:] == [line for line in lines if line.startswith(("perplexity", "BLEU"))]
    assert succeeds("translate", "-d", store, *model)
    shown = succeeds("inspect", store)
    assert "profile     segments:" in shown
    [in_use] = [line for line in shown.splitlines() if line.startswith("settings")]
    in_words = in_use.removeprefix("settings").strip().rpartition(", ")[0]  # without their origin
    [tuned] = [line for line in lines if line.startswith("tuned")]
    assert in_words.startswith("k ")
    assert in_words in tuned
    assert "already exists" in refused("adapt", memories[0], "-o", store, *model)


def test_a_store_that_makes_things_worse_is_not_passed_off_as_good(
    tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.evaluation.gain.Gain.is_worse", True)
    for module in ("holding_out", "adapting"):
        monkeypatch.setattr(f"knnmt.evaluation.{module}.MIN_HELD_OUT", 12)
    store = tmp_path / "own.store"
    memory = write(tmp_path / "one.tsv", 160)
    lines = succeeds("adapt", memory, "-o", store, "--sample", "0", "--model", tiny_checkpoint).splitlines()
    [worse] = [place for place, line in enumerate(lines) if line.startswith("worse ")]
    assert lines[worse + 1].startswith("perplexity")
    assert lines[-2].startswith(f"made       {store}, in ")
    assert lines[-2].endswith("but the model alone is better")
    assert lines[-1] == f"next       `knnmt inspect {store}` shows its settings and some of its pairs"
    assert "adapted" not in "\n".join(lines)


def test_development_text_is_no_part_of_the_store(tmp_path: Path, tiny_checkpoint: Path) -> None:
    memory, development = write(tmp_path / "own.tsv", 60), write(tmp_path / "dev.tsv", 6, start=100)
    store = tmp_path / "own.store"
    said = succeeds("adapt", memory, "-o", store, "--dev", development, "--model", tiny_checkpoint)
    assert "tuned      no; there is too little text" in said
    assert len(list(Datastore.open(store).pairs())) == 60
    heard: list[str] = []
    in_python = tmp_path / "py.store"
    made = knnmt.adapt(str(memory), str(in_python), dev=str(development), model=tiny_checkpoint, tell=heard.append)
    assert made.gain is None
    assert isinstance(made.store, Datastore)
    assert heard == said.splitlines()[: len(heard)]
    assert files_of(in_python) == files_of(store)


def test_mistakes_of_adapting_are_explained(tmp_path: Path, tiny_checkpoint: Path) -> None:
    store, model = tmp_path / "own.store", ("--model", str(tiny_checkpoint))
    assert "no such file" in refused("adapt", tmp_path / "absent.tsv", "-o", store, *model)
    os.mkfifo(tmp_path / "pipe")
    assert "adapting reads a memory several times" in refused("adapt", tmp_path / "pipe", "-o", store, *model)
    (tmp_path / "empty.tsv").write_text("", encoding="utf-8")
    assert "no usable pair" in refused("adapt", tmp_path / "empty.tsv", "-o", store, *model)
    assert not list(tmp_path.glob("own.store*"))
    with pytest.raises(SettingError, match="either all files or all pairs; found both"):
        knnmt.adapt([tmp_path / "empty.tsv", some_pairs(1)[0]], store)
    with pytest.raises(SettingError, match="a plan includes its development text"):
        knnmt.adapt(plan(list), store, dev=[], model=tiny_checkpoint)
