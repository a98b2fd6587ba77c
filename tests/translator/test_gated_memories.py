"""Stores with gates as a translator uses them: found, renewed, refused, signed, and seen in the evidence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from knnmt import Request, Translator
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.evaluation.running import run_systems
from knnmt.evaluation.systems import parse_system
from knnmt.retrieval.gate import FILE, GateNetwork, GateRecord, ThresholdGate, TrainedGate
from knnmt.retrieval.profiles import Profile, write_profiles
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.step import SentenceSoFar, Step
from knnmt.translator.settings import TranslationSettings
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
K, TEMPERATURE = 3, 12.5


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(12), tiny).path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(shutil.copytree(made, tmp_path / "s"))


@pytest.fixture
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


def write_gate(store: Datastore, weight: float) -> None:
    """One that always predicts this λ."""
    manifest = store.manifest
    network = GateNetwork(32)
    with torch.no_grad():
        for parameter in network.layers[-1].parameters():
            parameter.zero_()
        network.layers[-1].bias.fill_(torch.logit(torch.tensor(weight)))  # type: ignore[operator]
    record = GateRecord(
        features=(),
        k=K,
        temperature=TEMPERATURE,
        use_counts=True,
        model=manifest.model,
        tokenizer=manifest.tokenizer,
        dim=manifest.dim,
        transforms=(),
        seed=0,
        l1=0.0,
        pairs=9,
        epochs=1,
        losses={},
    )
    TrainedGate(network, record).write(store.path)


def test_a_gate_decides_what_is_searched_and_with_which_weight(translator: Translator, store: Datastore) -> None:
    write_gate(store, 0.4)
    texts = ["Satz 3 ja", "Satz 7"]
    alone = [each.text for each in translator.translate(texts, max_tokens=12)]
    searched = translator.translate(texts, datastore=store, gate=0.3, evidence=True, max_tokens=12)
    for token in [token for each in searched for token in each.tokens[:-1]]:
        assert token.evidence is not None
        assert token.evidence.interpolation_weight == pytest.approx(0.4)
        assert len(token.evidence.neighbours) == K
    rows = translator.statistics.rows
    assert translator.statistics.searches == rows > 0
    refused = translator.translate(texts, datastore=store, gate=0.5, evidence=True, max_tokens=12)
    assert [each.text for each in refused] == alone
    assert translator.statistics.searches == rows < translator.statistics.rows
    for token in [token for each in refused for token in each.tokens]:
        assert token.evidence is not None
        assert (token.evidence.interpolation_weight, token.evidence.neighbours) == (0.0, ())
        assert token.evidence.probability == token.evidence.model_probability


def test_what_is_published_says_so(translator: Translator, tiny_checkpoint: Path, store: Datastore) -> None:
    write_gate(store, 0.4)
    signature = translator.signature(datastore=store, gate=0.25)
    assert f"|k:{K}|lambda:predicted|T:12.5|cache:no|gate:0.25|gated:trained/" in signature
    assert "gate" not in translator.signature(datastore=store)
    always = Translator(tiny_checkpoint, device="cpu", datastore=store, gate=0.25, settings="raw")
    assert "|gate:0.25" in always.signature()
    assert "gate" not in always.signature(gate=None)


def test_a_gate_belongs_to_its_settings(translator: Translator, store: Datastore) -> None:
    write_gate(store, 0.4)
    retrieval = translator.memories.retrieval(store, RetrievalSettings(gate=0.5))
    assert (retrieval.config.k, retrieval.config.temperature) == (K, TEMPERATURE)
    assert translator.memories.retrieval(store, RetrievalSettings(gate=0.5, k=K)) is retrieval
    assert translator.memories.retrieval(store, RetrievalSettings()).gate is None
    with pytest.raises(SettingError, match="trained for k 3, but the call asks for 5"):
        translator.memories.retrieval(store, RetrievalSettings(gate=0.5, k=5))
    with pytest.raises(SettingError, match=r"trained for temperature 12\.5"):
        translator.translate(Request("Satz", store, temperature=1.0), gate=0.5)
    other = RetrievalConfig(7, 0.5, TEMPERATURE)
    with pytest.raises(SettingError, match="trained for k 3, but the call asks for 7"):
        translator.memories.retrieval(store, RetrievalSettings(gate=0.5, profile=other))
    write_profiles(store.path, {"knn": Profile(other, "likelihood", 9, None)}, "knn")
    assert (
        translator.memories.retrieval(store, RetrievalSettings(gate=0.5)).config.k == K
    )  # not asked for, but the default
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(SettingError, match="gate must be at least 0 and below 1"):
            translator.memories.retrieval(store, RetrievalSettings(gate=wrong))


def test_a_gate_that_appears_or_changes_is_used(translator: Translator, store: Datastore) -> None:
    with pytest.raises(SettingError, match=r"has no gate.*`knnmt train-gate .*s --dev DEV`"):
        translator.translate("Satz 3", datastore=store, gate=0.5)
    for number, weight in enumerate((0.4, 0.7)):
        write_gate(store, weight)
        os.utime(store.path / FILE, ns=(0, 10**9 + number))
        retrieval = translator.memories.retrieval(store, RetrievalSettings(gate=0.5))
        assert isinstance(retrieval.gate, ThresholdGate)
        states, nothing = torch.randn(2, 32), SentenceSoFar(torch.zeros(2), torch.zeros(2))
        rows = (states, states, nothing, torch.zeros(2, 231), torch.zeros(2, 0).long())
        searched, log_lambda = retrieval.gate(Step(retrieval.store.snapshot, retrieval.config, *rows))
        assert log_lambda is not None
        assert log_lambda.exp().tolist() == pytest.approx([weight, weight])
        assert searched.tolist() == [weight > 0.5] * 2
        assert translator.memories.retrieval(store, RetrievalSettings(gate=0.5)) is retrieval


def test_a_gate_outlives_additions_and_compaction(
    translator: Translator, tiny: TransformerEngine, store: Datastore
) -> None:
    write_gate(store, 0.4)
    translator.translate("Satz 3", datastore=store, gate=0.0, max_tokens=8)
    trained = translator.memories.open(store).gate
    store.add(some_pairs(9, start=40), tiny)
    store.remove(lambda pair: pair.source.startswith("Satz 1"))
    store.compact()
    found = translator.translate("Satz 3", datastore=store, gate=0.0, max_tokens=8, evidence=True)
    assert translator.memories.open(store).gate is trained
    seen = [each.evidence for each in found.tokens if each.evidence and not each.evidence.forced]
    assert [each.interpolation_weight for each in seen] == pytest.approx([0.4] * len(seen))
    assert seen


def test_kept_translations_are_done_anew_with_another_gate(
    translator: Translator, store: Datastore, tmp_path: Path
) -> None:
    system = parse_system(f"gated={store.path},gate=0.5")
    runs = []
    for number, weight in enumerate((0.6, 0.6, 0.7)):
        if number != 1:
            write_gate(store, weight)
            os.utime(store.path / FILE, ns=(0, 10**9 + number))
        runs += run_systems(translator, [system], ["Satz 3"], TranslationSettings(beam=2), tmp_path / "runs")
    assert [run.reused for run in runs] == [False, True, False]
    assert "|gate:0.5" in runs[0].signature
    assert runs[0].signature == runs[1].signature != runs[2].signature
