"""From memories to a store that is ready, in one command."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import knnmt
from knnmt import Datastore, FilterConfig
from knnmt.adapting.holding_out import plan
from knnmt.errors import SettingError
from support.commands import completed, refused, succeeds
from support.copied_stores import files_of
from support.datastore_pairs import some_pairs


def timeless(line: str) -> str:
    """A line without the time that its step took."""
    return re.sub(r"\b[0-9]+ s\b", "0 s", line)


def write(path: Path, count: int, start: int = 0) -> Path:
    lines = "".join(f"{each.source}\t{each.target}\n" for each in some_pairs(count, start=start))
    path.write_text(lines, encoding="utf-8")
    return path


def test_one_command_from_memories_to_translations(
    tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.adapting.tune.CACHE_PAIRS", 1)
    for module in ("holding_out", "adapt"):
        monkeypatch.setattr(f"knnmt.adapting.{module}.MIN_HELD_OUT", 12)
    memories = write(tmp_path / "one.tsv", 100), write(tmp_path / "two.tsv", 65, start=95)  # the last five twice
    store, model = tmp_path / "own.store", ("--model", str(tiny_checkpoint))
    said = succeeds("adapt", *memories, "-o", store, "--sample", "2", "--drop-duplicates", *model)
    lines = said.splitlines()
    assert len(lines) == 6
    assert lines[0] == "read       165 pairs from 2 files; left out: 5 duplicate"
    assert " of 160 pairs, to choose settings and to measure the gain: " in lines[1]
    verdict = lines[3][:11].strip()
    assert [line[:11].strip() for line in lines] == ["read", "held out", "built", verdict, "adapted", "next"]
    assert verdict in ("better", "no gain")
    assert lines[-1] == (
        f"next       `knnmt translate -m {tiny_checkpoint} -d {store} --text TEXT` translates with the store"
    )
    assert len(list(Datastore.open(store).pairs())) == 160
    heard: list[str] = []
    pairs = knnmt.read_memories(memories, filters=FilterConfig(duplicates=False))
    made = knnmt.adapt(pairs, tmp_path / "py.store", sample=2, model=tiny_checkpoint, on_message=heard.append)
    assert [timeless(line) for line in heard] == [timeless(line).replace("own", "py") for line in lines[1:-1]]
    assert str(made).splitlines() == heard
    assert files_of(made.store.path) == files_of(store)
    assert succeeds("translate", "-d", store, *model)
    shown = succeeds("inspect", store)
    assert "profile     segments:" in shown
    [in_use] = [line for line in shown.splitlines() if line.startswith("settings")]
    in_words = in_use.removeprefix("settings").strip().rpartition(", ")[0]  # without their origin
    assert in_words.startswith("k ")
    verbose = succeeds("adapt", *memories, "-o", tmp_path / "second.store", "--sample", "2", "--verbose", *model)
    assert in_words in verbose
    assert "left out   5  duplicate" not in verbose  # they were not left out here
    assert {"tuned", "compared", "perplexity", "chrF", "added"} <= {line[:11].strip() for line in verbose.splitlines()}
    assert "already exists" in refused("adapt", memories[0], "-o", store, *model)


def test_a_store_that_makes_things_worse_is_not_passed_off_as_good(
    tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.adapting.gain.Gain.is_worse", True)
    for module in ("holding_out", "adapt"):
        monkeypatch.setattr(f"knnmt.adapting.{module}.MIN_HELD_OUT", 12)
    store = tmp_path / "own.store"
    memory = write(tmp_path / "one.tsv", 160)
    ended = completed("adapt", memory, "-o", store, "--sample", "0", "--model", tiny_checkpoint)
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert [line[:11].strip() for line in lines] == ["read", "held out", "built", "worse", "", "", "made", "next"]
    assert lines[3].startswith("worse      perplexity ")
    assert lines[-2].endswith(": 160 sentences, but it should not be used as it is")
    assert lines[-1] == f"next       `knnmt inspect {store}` shows some of its pairs"


def test_development_text_is_no_part_of_the_store(tmp_path: Path, tiny_checkpoint: Path) -> None:
    memory, development = write(tmp_path / "own.tsv", 60), write(tmp_path / "dev.tsv", 6, start=100)
    store = tmp_path / "own.store"
    said = succeeds("adapt", memory, "-o", store, "--dev", development, "--model", tiny_checkpoint)
    assert "unmeasured there is too little text" in said
    assert len(list(Datastore.open(store).pairs())) == 60
    heard: list[str] = []
    in_python = tmp_path / "py.store"
    made = knnmt.adapt(
        str(memory), str(in_python), dev=str(development), model=tiny_checkpoint, on_message=heard.append
    )
    assert made.gain is None
    assert isinstance(made.store, Datastore)
    assert [timeless(line) for line in heard] == [
        timeless(line).replace("own.store", "py.store") for line in said.splitlines()[:-1]
    ]
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
