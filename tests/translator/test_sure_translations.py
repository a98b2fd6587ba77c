"""How sure a translation is: said where the store knows it, and of matches that are taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt import Datastore, Request, SegmentPair, Translation, Translator
from knnmt.calibration.certainty import SECTION, Certainty, forget_certainty
from knnmt.datastore.settings import write_settings
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, MissingDependencyError, SourceKeptWarning
from knnmt.translator.assembly import Part, assemble
from knnmt.translator.segments import TextSegment
from knnmt.translator.translation import Caution

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
MEMORY = [
    SegmentPair("Schließen", "Shut it now", "a#1"),
    SegmentPair("Schließen", "Shut it", "a#2"),
    SegmentPair("Schließen", "Shut it", "a#3"),
    SegmentPair("Öffnen", "Open", "a#4"),
    SegmentPair("Seite 3 von 30 ist leer", "Page 3 of 30 is bare", "a#5"),
]


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", MEMORY, tiny)


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path, store: Datastore) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", datastore=store, settings="raw")


def test_a_translation_says_how_sure_it_is_at_the_settings_that_were_measured(
    translator: Translator, store: Datastore
) -> None:
    assert translator.translate("Guten Tag", beam=2, max_tokens=5).certainty is None
    found = translator.retrieval()
    assert found is not None
    known = Certainty(4.0, 0.7, 100, found.config)
    known.save(store.path)  # which calls after this one see
    for penalty in (1.0, 0.3):
        (sure,) = translator.translate(
            ["Guten Tag.\nUnd gute Nacht."], n_best=2, length_penalty=penalty, beam=2, max_tokens=5
        )
        each: Translation
        for each in (sure, *sure.alternatives):
            assert each.log_probability < 0
            assert each.certainty == known.of(each.log_probability)
        if penalty == 1.0:
            assert sure.log_probability == pytest.approx(sure.score)
    assert (
        translator.translate("Guten Tag", cache=4.0, beam=2, max_tokens=5).certainty is None
    )  # searches the whole store
    assert translator.translate("Guten Tag", k=1, beam=2, max_tokens=5).certainty is None
    assert translator.translate("Guten Tag", datastore=None, beam=2, max_tokens=5).certainty is None
    write_settings(store.path, **{SECTION: {**known.section()[SECTION], "slope": -1.0}})
    with pytest.raises(DatastoreDamagedError, match="makes it again"):
        translator.translate("Guten Tag", beam=2, max_tokens=5)
    assert translator.memories.open(store).resolve() == known.config  # so that it can be tuned
    forget_certainty(store.path)
    assert translator.translate(Request(" "), beam=2, max_tokens=5).certainty is None


def test_matches_are_as_sure_as_the_memory_is_of_one_mind(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def certainty(text: str) -> int | None:
        return translator.translate(text, exact_matches="use", match_threshold=60).certainty

    assert certainty("Öffnen") == 100
    assert certainty("Schließen") == round((100 + 100 + 200 / 3) / 3)
    assert certainty("Seite 7 von 30 ist leer") == 98

    def missing(*_: str) -> float:
        raise MissingDependencyError("rapidfuzz", "comparing", "matches")

    monkeypatch.setattr("knnmt.translator.taking_over.likeness", missing)
    assert certainty("Öffnen") == 100
    assert certainty("Schließen") is None


def test_what_stays_as_it_was_has_to_be_translated(translator: Translator) -> None:
    retrieval = translator.retrieval()
    assert retrieval is not None
    (found,) = translator.translate(["Guten Tag"], beam=1, max_tokens=5)
    hypothesis = Hypothesis(tuple(token.id for token in found.tokens), found.score)
    part = Part(hypothesis, cautions=(Caution(SourceKeptWarning, "stays"),))
    known = Certainty(4.0, 0.7, 100, retrieval.config)
    made = assemble(
        "Guten Tag", [TextSegment("Guten Tag")], [[part]], translator.engine.tokenizer,
        translator.decoding(beam=1), certainty=known,
    )  # fmt: skip
    assert made.certainty == 0
