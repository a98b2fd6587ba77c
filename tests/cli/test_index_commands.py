"""Indexing a store, and translating with it, from the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt import Translator
from knnmt.calibration.estimates import Calibration
from knnmt.calibration.index_choice import Chooser
from knnmt.cli import app
from knnmt.cli.progress import progress_bars
from knnmt.corpus.splitting import halves
from knnmt.datastore.manifest import INDEXES
from knnmt.datastore.store import Datastore
from knnmt.errors import KnnmtError
from knnmt.index.saved import build_index, lags, read_saved
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval import open_store
from knnmt.translator import memories
from support import warm
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip

FIXED = {"interpolation_weight": 0.7, "temperature": 9.0}
LINES = "Satz 3 ja ja\nanders\n\nSatz 12\n"


def succeeds(*arguments: str | Path, stdin: str = "") -> tuple[str, str]:
    """What a command printed, and what it said beside that; run in this process, for PyTorch is loaded already."""
    with warnings.catch_warnings():  # `translate` shows them in its own way, for the rest of the process
        done = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def refused(*arguments: str | Path) -> str:
    with pytest.raises(KnnmtError) as error, warnings.catch_warnings():
        CliRunner().invoke(app, [str(each) for each in arguments], input=LINES, catch_exceptions=False)
    return str(error.value)


@pytest.fixture
def store(built_store: Callable[[int], Path], tmp_path: Path) -> Path:
    return shutil.copytree(built_store(80), tmp_path / "own.store")


def test_a_build_ends_with_settings_and_no_index(tmp_path: Path, model: list[str]) -> None:
    memory = tmp_path / "own.tsv"
    memory.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in some_pairs(60)), encoding="utf-8")
    said, _ = succeeds("build", memory, "-o", tmp_path / "a.store", *model)
    assert said.count("built      ") == 1
    assert "index" not in said
    assert "\nsettings   k:8|lambda:0." in said
    assert ", estimated from " in said
    opened = Datastore.open(tmp_path / "a.store")
    assert read_saved(opened) is None
    calibration = Calibration.of(opened.path, by_segment=True)
    assert calibration is not None
    assert calibration.config().signature() in said

    said, _ = succeeds("build", memory, "-o", tmp_path / "b.store", "--no-estimate", *model)
    assert "settings" not in said
    assert {path.name for path in (tmp_path / "b.store").iterdir()} == {"manifest.json", "segments", "lock"}


def test_the_table_of_indexes(store: Path, model: list[str]) -> None:
    said, _ = succeeds("index", store, "--kind", "exact", *model)
    heading, row, chosen, settings = said.splitlines()
    assert heading.split() == ["index", "recall", "variation", "ms/5", "ms/40", "ms/80", "B/entry"]
    assert row.split()[:3] == ["exact", "1.000", "0.0000"]
    assert len(row) == len(heading)
    assert chosen == "index      exact: asked for"
    assert settings.startswith("settings   k:8|lambda:")

    faiss_or_skip()
    said, _ = succeeds("index", store, "--kind", "ivfpq", "--recall", "0.999", *model)
    assert "\nivfpq, " in said
    assert "\nindex      ivfpq, " in said
    saved = read_saved(Datastore.open(store))
    assert saved is not None
    assert saved.kind == "ivfpq"
    assert 0 < saved.fidelity["recall"] <= 1
    assert StoreIndex(Datastore.open(store)).signature.startswith("ivfpq/")


def test_development_pairs_ask_instead_of_the_stores_own(store: Path, model: list[str], tmp_path: Path) -> None:
    development = tmp_path / "dev.tsv"
    development.write_text("".join(f"{each.source}\t{each.target}\n" for each in some_pairs(4, start=200)))
    said, _ = succeeds("index", store, "--dev", development, *model)
    tuning, _ = halves(some_pairs(4, start=200))
    tokens = sum(len(each.target) + 1 for each in tuning)  # letters, and the end
    assert f"estimated from {tokens} entries" in said


def test_mistakes_of_indexing_are_explained(store: Path, model: list[str], tmp_path: Path) -> None:
    assert "--kind must be one of exact, " in refused("index", store, "--kind", "fastest", *model)
    assert "there is no datastore" in refused("index", tmp_path / "absent", *model)
    assert "recall must be above 0 and at most 1" in refused("index", store, "--recall", "1.5", *model)
    assert "no such file" in refused("index", store, "--dev", tmp_path / "absent.tsv", *model)
    assert read_saved(Datastore.open(store)) is None


def test_a_killed_index_leaves_the_earlier_one_in_force(store: Path, model: list[str]) -> None:
    faiss_or_skip()
    succeeds("index", store, "--kind", "ivfpq", *model)
    record = (store / INDEXES / "index.json").read_bytes()
    kinds = [word for kind in ("ivfpq", "pq4", "rabitq") for word in ("--kind", kind)]
    command = [sys.executable, "-m", "knnmt", "index", str(store), *kinds, *model]
    with warm.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"index")
        assert process.stdout.readline().startswith(b"exact")  # the others are still to be built
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert (store / INDEXES / "index.json").read_bytes() == record
    assert StoreIndex(Datastore.open(store)).signature.startswith("ivfpq/")
    assert len(succeeds("translate", "-d", store, *model, stdin=LINES)[0].splitlines()) == 4
    assert "index      exact" in succeeds("index", store, "--kind", "exact", *model)[0]


def test_adding_to_a_store_with_an_index(
    store: Path, model: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faiss_or_skip()
    build_index(Datastore.open(store), "ivf-flat")
    before = (store / INDEXES / "index.json").read_bytes()
    more = tmp_path / "more.tsv"
    more.write_text("Neue Zeile\tnew line\n", encoding="utf-8")
    said, _ = succeeds("add", store, more, *model)
    assert "added      1 sentence" in said
    assert "index " not in said  # so few are searched exactly
    assert (store / INDEXES / "index.json").read_bytes() == before
    assert "exact for 9 newer ones" in StoreIndex(Datastore.open(store)).description

    monkeypatch.setattr("knnmt.index.saved.lags", partial(lags, noticeable_entries=5))
    said, _ = succeeds("add", store, more, *model)
    assert f"index      ivf-flat, {Datastore.open(store).entries:,} entries" in said
    assert "newer" not in StoreIndex(Datastore.open(store)).description
    succeeds("remove", store, "--match", "Neue")
    assert "index      ivf-flat, " in succeeds("compact", store)[0]  # the ids are others now


# Translating ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ([], {}),
        (["--k", "3", "--lambda", "0.7", "--temperature", "9"], {**FIXED, "k": 3}),
        (["--no-fading", "--exact"], {"fading": False}),
        (["--lambda", "0.9", "--fading"], {"interpolation_weight": 0.9, "fading": True}),
        (["--cache", "5"], {"cache": 5}),
        (["--cache", "20%"], {"cache": "20%"}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_options_are_the_settings_of_a_translator(
    store: Path, tiny_checkpoint: Path, options: list[str], settings: dict[str, object]
) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", datastore=store, **settings)  # type: ignore[arg-type]
    expected = translator.translate(LINES.split("\n")[:-1], protect=False, exact_matches="ignore")
    decoded = ["--exact-matches", "ignore", "--no-protect"]
    said, _ = succeeds("translate", "-d", store, "--scores", "-m", tiny_checkpoint, *decoded, *options, stdin=LINES)
    assert said.splitlines() == [f"{each.score:.4f}\t{each.text}" for each in expected]


def test_evidence_and_matches_as_json(store: Path, model: list[str]) -> None:
    told, _ = succeeds(
        "translate", "-d", store, "--jsonl", "--evidence", "--match", "--no-protect", *model, stdin=LINES
    )
    first, second, empty, _ = [json.loads(line) for line in told.splitlines()]
    assert len(first["evidence"]) == len(first["tokens"])
    why = first["evidence"][0]
    assert set(why) == {
        "probability", "model_probability", "memory_probability", "interpolation_weight", "cached", "forced",
        "neighbours",
    }  # fmt: skip
    assert set(why["neighbours"][0]) == {"token", "distance", "weight", "segment", "position", "entry", "span"}
    named = {near["segment"] for each in first["evidence"] for near in each["neighbours"]}
    assert named == set(range(len(first["segments"])))
    assert set(first["segments"][0]) == {"source", "target", "origin", "context"}
    nearest = first["segments"][why["neighbours"][0]["segment"]]
    assert nearest["origin"].startswith("own.tsv#")
    assert len({json.dumps(each) for each in first["segments"]}) == len(first["segments"])
    assert why["probability"] == round(why["probability"], 6)
    assert first["match"]["score"] >= 75
    assert not first["match"]["exact"]
    assert "match" not in second
    assert not {"evidence", "segments"} & set(empty)
    told, _ = succeeds("translate", "-d", store, "--jsonl", *model, stdin=LINES)
    assert not {"evidence", "match"} & set(json.loads(told.splitlines()[0]))


def test_timings_count_the_searches(store: Path, model: list[str]) -> None:
    _, said = succeeds("translate", "-d", store, "--timings", "--cache", "5", *model, stdin=LINES)
    for stage in ("retrieval", "search"):
        assert stage in said
    counted, *hits = [line for line in said.splitlines() if line.startswith(("searches     ", "hits         "))]
    assert sum(int(line.split()[1]) for line in hits) == int(counted.split("; ")[1].split()[0])
    assert "% saved" in counted
    assert counted.endswith(" from the cache")
    _, said = succeeds("translate", "--timings", *model, stdin=LINES)
    assert "searches" not in said


def test_mistakes_of_translating_with_a_store_are_explained(store: Path, model: list[str], tmp_path: Path) -> None:
    assert "there is no datastore" in refused("translate", "-d", tmp_path / "absent", *model)
    needed = "--evidence and --match need --jsonl and --datastore: add both"
    assert needed in refused("translate", "-d", store, "--evidence", *model)
    assert needed in refused("translate", "--jsonl", "--match", *model)
    assert "below 1, got 1.5" in refused("translate", "-d", store, "--lambda", "1.5", *model)
    assert "got 'viel'" in refused("translate", "-d", store, "--cache", "viel", *model)
    assert "no profile 'x'; it has estimated" in refused("translate", "-d", store, "--profile", "x", *model)
    assert "--search must be" in refused("translate", "-d", store, "--search", "x", *model)
    assert "built with" in refused("translate", "-d", store, "-m", "de-en")
    assert "--k, --lambda, --exact: only used with" in refused("translate", "--exact", "--lambda", "0.5", "--k", "2")


def test_a_large_store_without_index_gives_a_hint(
    store: Path, model: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store, "StoreIndex", partial(StoreIndex, noticeable_entries=10))
    monkeypatch.setattr(memories, "warned", set())
    whole = ["translate", "-d", str(store), "--search", "whole", *model]
    assert "searched" not in succeeds("translate", "-d", store, *model, stdin=LINES)[1]  # by segment no index is needed
    _, said = succeeds(*whole, stdin=LINES)
    assert said.count(f"knnmt: warning: {store}: searched exactly; `knnmt index {store}` makes it faster\n") == 1
    memories.warned.clear()
    assert "searched" not in succeeds(*whole, "--exact", stdin=LINES)[1]
    build_index(Datastore.open(store), "exact")
    assert "searched" not in succeeds(*whole, stdin=LINES)[1]


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
@pytest.mark.filterwarnings("default::knnmt.errors.SlowSearchWarning")
@pytest.mark.parametrize(
    "command",
    [
        "index {store}",
        "translate -d {store} --search whole --max-tokens 4",
        "tune {store} --dev {dev} --whole --no-save",
        "train-gate {store} --dev {dev} --epochs 1 --no-save",
        "evaluate --pairs {dev} --system one={store},search=whole --system other={store},search=whole,k=2 --beam 1",
    ],
)
def test_that_faiss_is_missing_is_said_once_where_it_is_felt(
    store: Path, model: list[str], tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store, "StoreIndex", partial(StoreIndex, noticeable_entries=10))
    monkeypatch.setattr("knnmt.calibration.index_choice.Chooser", partial(Chooser, max_exact_entries=10))
    monkeypatch.setattr(memories, "warned", set())
    monkeypatch.setattr("knnmt.adapting.tune.CACHE_PAIRS", 1)
    monkeypatch.setitem(sys.modules, "faiss", None)
    dev = tmp_path / "d.tsv"
    text = "".join(f"{each.source}\t{each.target}\n" for each in some_pairs(12, start=300))
    dev.write_text(text, encoding="utf-8")
    said = "".join(succeeds(*command.format(store=store, dev=dev).split(), *model, stdin=LINES))
    assert said.count("pip install 'knnmt[faiss]'") == 1
    assert f"`knnmt index {store}`" in said


def test_the_index_is_verified_with_its_store(store: Path) -> None:
    build_index(Datastore.open(store), "flat")
    assert succeeds("verify", store)[0].startswith("sound: 2 files")
    file = next((store / INDEXES).glob("*.faiss"))
    file.write_bytes(file.read_bytes()[:-1] + b"\x00")
    done = CliRunner().invoke(app, ["verify", str(store)])
    assert done.exit_code == 1
    assert "it was altered. `knnmt index" in done.stdout


def test_a_bar_is_there_while_an_index_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_bars("indexing", "entries") as progress:
        for done in (0, 40, 100, 0, 50):  # one ends, and another one is broken off
            progress(done, 100)
    assert "indexing" in capsys.readouterr().err
