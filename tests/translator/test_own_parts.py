"""Gates and combiners of one's own, named as a command line names them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from knnmt import Translator
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import KnnmtError, SettingError
from knnmt.evaluation.systems import parse_system
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.profiles import Profile, write_profiles
from knnmt.retrieval.retriever import BatchRetrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.settings import TranslationSettings
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
MODULE = "own_parts_of_a_test"
CODE = """
import torch
from knnmt.retrieval.combiner import DistanceCombiner

class Usual:
    def __init__(self, store, config, engine):
        self.combiner = DistanceCombiner(config, store.same_distance)
        self.vocabulary = engine.vocabulary_size

    def signature(self):
        return "usual/1"

    def __call__(self, step, neighbours):
        assert step.log_probabilities.shape == (len(step), self.vocabulary)
        return self.combiner(step, neighbours)

class Never:
    def __init__(self, store, config, engine): ...

    def signature(self):
        return "never/2"

    def __call__(self, step):
        return torch.zeros(len(step), dtype=torch.bool), None

def made(store, config, engine):
    return lambda step: (torch.ones(len(step), dtype=torch.bool), None)

class Odd:
    def __init__(self, store, config): ...

def nothing(store, config, engine):
    return 7

def wrong(store, config, engine):
    return lambda: None

def short_gate(store, config, engine):
    return lambda step: (torch.ones(1, dtype=torch.bool), None)

def counting_gate(store, config, engine):
    return lambda step: (torch.ones(len(step)), None)

def bare_gate(store, config, engine):
    return lambda step: True

def narrow_combiner(store, config, engine):
    return lambda step, neighbours: (neighbours.distances_sq[:, :1], neighbours.distances_sq[:, 0])

def one_combiner(store, config, engine):
    return lambda step, neighbours: (neighbours.distances_sq, torch.zeros(1))

def heavy_combiner(store, config, engine):
    return lambda step, neighbours: (torch.zeros(neighbours.ids.shape), torch.full((len(step),), -1.0))


def sure_combiner(store, config, engine):
    even = lambda neighbours: torch.zeros(neighbours.ids.shape).log_softmax(1)
    return lambda step, neighbours: (even(neighbours), torch.full((len(step),), 0.5))


def nan_combiner(store, config, engine):
    return lambda step, neighbours: (torch.zeros_like(neighbours.distances_sq) / 0, torch.zeros(len(step)))

def nan_gate(store, config, engine):
    return lambda step: (torch.ones(len(step), dtype=torch.bool), torch.full((len(step),), float("nan")))
"""


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    Path(f"{MODULE}.py").write_text(CODE, encoding="utf-8")


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(20), tiny)


@pytest.fixture
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


def test_a_named_combiner_and_gate_are_used(translator: Translator, store: Datastore) -> None:
    texts = [pair.source for pair in some_pairs(4)]

    def found(**settings: Any) -> list[str]:
        return [each.text for each in translator.translate(texts, datastore=store, max_tokens=9, **settings)]

    usual, alone = found(), [each.text for each in translator.translate(texts, datastore=None, max_tokens=9)]
    assert usual != alone
    assert found(combiner=f"{MODULE}:Usual") == usual
    assert found(gate=f"{MODULE}:Never") == alone
    assert found(gate=f"{MODULE}:made", combiner=f"{MODULE}:Usual") == usual


def test_signatures_name_them_and_they_are_made_once(translator: Translator, store: Datastore) -> None:
    settings = RetrievalSettings(combiner=f"{MODULE}:Usual", gate=f"{MODULE}:Never")
    retrieval = translator.memories.retrieval(store, settings)
    assert retrieval.signature().endswith("|gated:never/2|combiner:usual/1")
    assert retrieval.signed
    assert translator.memories.retrieval(store, settings) is retrieval
    plain = translator.memories.retrieval(store)
    assert plain is not retrieval
    assert plain.config == retrieval.config
    assert isinstance(BatchRetrieval([plain]).stepwise, CompiledSteps)
    unsigned = translator.memories.retrieval(store, RetrievalSettings(gate=f"{MODULE}:made"))
    assert unsigned.signature().endswith("|gated:unsigned")
    assert not unsigned.signed


def test_no_index_has_a_part_in_retrieval_by_segment(translator: Translator, store: Datastore) -> None:
    whole, some = (translator.retrieval(datastore=store, search=search) for search in ("whole", "segments"))
    assert whole is not None
    assert some is not None
    assert "|index:exact|" in whole.signature()
    assert some.signature() == whole.signature().replace("|index:exact", "").replace("|cache:", "|segments:512|cache:")


def test_the_text_of_a_system_names_them(store: Datastore) -> None:
    system = parse_system(f"own={store.path},combiner={MODULE}:Usual,gate={MODULE}:Never,k=3")
    assert system.settings == TranslationSettings(combiner=f"{MODULE}:Usual", gate=f"{MODULE}:Never", k=3)
    assert parse_system(f"own={store.path},gate=0.5").settings == TranslationSettings(gate=0.5)


@pytest.mark.parametrize(
    ("setting", "name", "problem"),
    [
        ("combiner", "Odd", r"function that can be called with \(store, config, engine\)"),
        ("combiner", "nothing", "made int, which cannot be called"),
        ("combiner", "wrong", r"a combiner is called with \(step, neighbours\)"),
        ("gate", "wrong", r"a gate is called with \(step\)"),
        ("gate", "Gone", "has no attribute 'Gone'"),
        ("gate", "torch", r"function that can be called with \(store, config, engine\)"),
    ],
)
def test_what_is_none_is_refused(
    translator: Translator, store: Datastore, setting: str, name: str, problem: str
) -> None:
    settings = RetrievalSettings(**{setting: f"{MODULE}:{name}"})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=problem):
        translator.memories.retrieval(store, settings)


@pytest.mark.parametrize(
    ("setting", "name", "problem"),
    [
        (
            "gate",
            "short_gate",
            r"a gate must return \(rows,\) bool.* for 2 rows; short_gate.* gave \(1,\) torch.bool, None",
        ),
        ("gate", "counting_gate", r"gave \(2,\) torch.float32, None"),
        ("gate", "bare_gate", "gave True"),
        ("combiner", "narrow_combiner", r"here \(2, 4\) and \(2,\); narrow_combiner.* gave \(2, 1\) torch.float32, \("),
        ("combiner", "one_combiner", r"gave \(2, 4\) torch.float32, \(1,\) torch.float32"),
        ("combiner", "heavy_combiner", r"heavy_combiner.* weights that do not sum to 1: a row differs by 3"),
        ("combiner", "sure_combiner", r"sure_combiner.* returned 0.5 as the logarithm of λ, which is then above 1"),
        ("combiner", "nan_combiner", "nan_combiner.* returned NaN for states and distances that are numbers"),
        ("gate", "nan_gate", "nan_gate.* returned NaN"),
    ],
)
@pytest.mark.parametrize("segments", [None, 3])
def test_what_they_say_is_numbers_in_the_shapes_of_the_rows(
    translator: Translator, store: Datastore, setting: str, name: str, problem: str, segments: int | None
) -> None:
    given: Any = {setting: f"{MODULE}:{name}", "k": 4, "segments": segments}
    texts = [pair.source for pair in some_pairs(2)]
    with pytest.raises(SettingError, match=problem):
        translator.translate(texts, datastore=store, max_tokens=9, **given)


def test_a_retrieval_is_no_path(translator: Translator, store: Datastore) -> None:
    with pytest.raises(SettingError, match="retrieval must be a Retrieval, got '"):
        translator.translate("Satz 3", retrieval=str(store.path))  # type: ignore[call-overload]


def test_numbers_stay_thresholds() -> None:
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(SettingError, match="gate must be at least 0 and below 1"):
            RetrievalSettings(gate=wrong)


@pytest.mark.parametrize("name", ["combiner", "gate"])
def test_a_profile_names_no_code(translator: Translator, store: Datastore, tmp_path: Path, name: str) -> None:
    config = translator.memories.retrieval(store).config
    copy = Datastore.build(tmp_path / "copy", some_pairs(5), translator.engine)
    write_profiles(copy.path, {"knn": Profile(config, "likelihood", 9, None)}, "knn")
    content = read_settings(copy.path)
    before = json.dumps(content)

    def put(part: object) -> None:
        for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            put(value)
        if isinstance(part, dict) and "temperature" in part:
            part[name] = f"{MODULE}:Never"

    put(content)
    assert json.dumps(content) != before
    write_settings(copy.path, **content)
    with pytest.raises(KnnmtError, match=name):
        translator.translate("Satz 3", datastore=copy, max_tokens=5)
    assert MODULE not in sys.modules
