"""`knnmt train-combiner`, and translating, evaluating and verifying with what it leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.config import DEFAULT_SEGMENTS
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError, SettingError
from knnmt.retrieval.settings import TRAINED_COMBINERS, RetrievalSettings
from knnmt.retrieval.trained.combiner import TrainedCombiner, combiner_file
from knnmt.translator.memories import Memories
from support.commands import run
from support.datastore_pairs import development_file
from support.random_combiners import META_K

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture
def store(built_store: Callable[[int], Path], tmp_path: Path) -> Path:
    return shutil.copytree(built_store(40), tmp_path / "own.store")


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    return development_file(tmp_path / "dev.tsv", 40)


@pytest.mark.parametrize("method", [*TRAINED_COMBINERS, META_K])
def test_a_combiner_is_trained_reported_and_used(store: Path, dev: Path, tiny_checkpoint: Path, method: str) -> None:
    model = ["--model", str(tiny_checkpoint)]
    translate = ["translate", "-d", str(store), *model, "--beam", "2", "--max-tokens", "8", "--combiner", method]
    with pytest.raises(SettingError, match="knnmt train-combiner"):
        run(*translate)
    train = ["train-combiner", str(store), "--dev", str(dev), *model, "--method", method, "--updates", "20", "--k", "3"]
    said = run(*train)
    assert "known       3 of 43 pairs" in said
    lines = {line[:34].strip(): line[34:].split() for line in said.splitlines()}
    worse = float(lines["the combiner"][0]) > float(lines["fading λ"][0])
    assert ("worse than fading λ" in said) == worse
    combiner = TrainedCombiner.read(Datastore.open(store), method)
    assert (combiner.record.k, combiner.record.seed, combiner.record.segments) == (3, 0, DEFAULT_SEGMENTS)
    assert run(*translate).strip()
    with pytest.raises(SettingError, match="trained for k 3, but the call asks for 5"):
        run(*translate, "--k", "5")
    path = combiner_file(store, method).path
    assert path.is_file()
    if method == META_K:  # which `inspect` and `verify` know if a package registers it
        return
    assert f"combiner    {path.name}" in run("inspect", store)
    run("verify", store)
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    assert "altered" in run("verify", store, expected=1)


def test_scores_name_it(store: Path, dev: Path, tiny_checkpoint: Path) -> None:
    model = ["--model", str(tiny_checkpoint)]
    run("train-combiner", store, "--dev", dev, *model, "--method", META_K, "--updates", "5")
    system = f"learnt={store},combiner={META_K}"
    signature = TrainedCombiner.read(Datastore.open(store), META_K).signature()
    said = run("evaluate", "--pairs", dev, *model, "--system", system, "--beam", "1", "--half", "report")
    assert f"combiner:{signature}" in said


def test_one_that_is_trained_again_is_taken_up(
    store: Path, dev: Path, tiny: TransformerEngine, tiny_checkpoint: Path
) -> None:
    train = ["train-combiner", str(store), "--dev", str(dev), "--model", str(tiny_checkpoint), "--updates", "3"]
    run(*train)
    memories, asked = Memories(tiny), RetrievalSettings(combiner="robust")
    first = memories.retrieval(store, asked)
    assert memories.retrieval(store, asked) is first
    run(*train, "--seed", "7")
    again = memories.retrieval(store, asked)
    assert again.signature() != first.signature()
    assert again.signature().endswith(f"combiner:{TrainedCombiner.read(Datastore.open(store), 'robust').signature()}")


def test_what_cannot_work_is_said_at_once(store: Path, dev: Path, tiny_checkpoint: Path) -> None:
    with pytest.raises(SettingError, match="--method must be"):
        run("train-combiner", store, "--dev", dev, "--method", "colour", "--model", tiny_checkpoint)
    with pytest.raises(SettingError, match="the combiner robust has its own k, T and λ"):
        run("tune", store, "--dev", dev, "--method", "bleu", "--combiner", "robust")
    dev.write_text("Satz 300\tline 300\n", encoding="utf-8")
    with pytest.raises(InputError, match="too few"):
        run("train-combiner", store, "--dev", dev, "--all-dev")
