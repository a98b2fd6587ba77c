"""Models that only `transformers` runs: stores like any other, and a clear word where one cannot be run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.generic import GenericEngine
from knnmt.engine.loading import load_engine
from knnmt.errors import DatastoreMismatchError, MissingDependencyError, SettingError, UnsupportedModelError
from knnmt.translator.translator import Translator
from support.checkpoints import edit_json
from support.family_checkpoints import make_family
from support.german import german_memory


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("t5"), "t5", {"max_length": 120})


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
def test_a_store_of_a_t5_gives_back_its_memory_with_evidence(t5: Path, tmp_path: Path) -> None:
    engine = load_engine(t5, device="cpu")
    assert isinstance(engine, GenericEngine)
    memory = german_memory(12)
    store = Datastore.build(tmp_path / "store", memory, engine, BuildConfig(key_dtype="float32"))
    assert (store.manifest.dim, store.manifest.vocabulary) == (32, 128)
    translator = Translator(t5, device="cpu", datastore=store, k=1, interpolation_weight=0.99, settings="raw")
    found = translator.translate([pair.source for pair in memory[:4]], evidence=True)
    assert [each.text for each in found] == [pair.target for pair in memory[:4]]
    assert all(token.evidence is not None for token in found[0].tokens)
    plain = Translator(t5, device="cpu", settings="raw")
    with_nothing = Translator(t5, device="cpu", datastore=store, k=2, interpolation_weight=0.0, settings="raw")
    text = memory[0].source
    assert with_nothing.translate(text, max_tokens=20).tokens == plain.translate(text, max_tokens=20).tokens


def test_a_store_of_another_model_is_refused(t5: Path, tmp_path: Path, tiny: Any) -> None:
    store = Datastore.build(tmp_path / "store", german_memory(3), load_engine(t5, device="cpu"))
    with pytest.raises(DatastoreMismatchError, match="built with the model"):
        Datastore.open(store.path, tiny)


def test_positions_are_those_of_config_or_a_sensible_number(t5: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(t5, tmp_path / "copy"))
    assert load_engine(copy, device="cpu").max_positions == 512
    edit_json(copy / "config.json", n_positions=77)
    engine = load_engine(copy, device="cpu")
    assert (engine.max_positions, engine.generation.max_tokens) == (77, 76)


def test_without_transformers_the_error_says_how_to_install_it(t5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"model of type 't5',.*pip install 'knnmt\[transformers\]'"):
        load_engine(t5, device="cpu")


def test_a_model_whose_logits_are_more_than_a_projection_is_refused(t5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import T5ForConditionalGeneration

    plain = T5ForConditionalGeneration.forward

    def capped(*args: Any, **options: Any) -> Any:
        out = plain(*args, **options)
        out.logits = torch.tanh(out.logits / 2)
        return out

    monkeypatch.setattr(T5ForConditionalGeneration, "forward", capped)
    with pytest.raises(UnsupportedModelError, match="more than a linear projection"):
        load_engine(t5, device="cpu")


def test_a_model_that_gives_no_numbers_is_refused(t5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import T5ForConditionalGeneration

    plain = T5ForConditionalGeneration.forward

    def overflowing(*args: Any, **options: Any) -> Any:
        out = plain(*args, **options)
        out.logits = out.logits / 0
        return out

    monkeypatch.setattr(T5ForConditionalGeneration, "forward", overflowing)
    with pytest.raises(SettingError, match=r"its results in torch\.float32 are not numbers; use dtype 'bfloat16'"):
        load_engine(t5, device="cpu")
