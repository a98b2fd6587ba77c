"""What a call is handed: settings of every text, retrievals ready made, and texts that are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knnmt import Datastore, Request, Translation, Translator, explain
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import (
    CutTranslationWarning,
    InputError,
    NotADatastoreError,
    NoTranslationError,
    NoTranslationWarning,
    SettingError,
)
from knnmt.retrieval.profiles import Profiles
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.retrieval.statistics import Statistics
from knnmt.settings import NOT_GIVEN
from knnmt.translator.memories import Memories
from knnmt.translator.settings import PRESETS, TranslationSettings
from knnmt.translator.translation import Caution
from knnmt.translator.translator import CallKeywords
from knnmt_lab.reproduction.random_gate import RandomGate
from support.datastore_pairs import some_pairs

FIXED: RetrievalKeywords = {"k": 4, "interpolation_weight": 0.6, "temperature": 20.0}
TEXTS = ["Satz 3 ja ja", "Satz 12", "anders"]
BAD: list[Any] = [None, 5, "ab\ud800"]
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny)


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


@pytest.fixture
def ready(translator: Translator, store: Datastore) -> Retrieval:
    return Memories(translator.engine).retrieval(store, RetrievalSettings(**FIXED))


def assert_same(found: list[Translation], expected: list[Translation]) -> None:
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)


# Settings -----------------------------------------------------------------------------------------------------------


def test_settings_as_a_whole_are_the_keywords(tiny_checkpoint: Path, translator: Translator, store: Datastore) -> None:
    whole = RetrievalSettings(**FIXED)
    expected = translator.translate(TEXTS, datastore=store, **FIXED)
    assert_same(translator.translate(TEXTS, datastore=store, settings=whole), expected)
    assert_same([translator.translate(Request(text, store, whole)) for text in TEXTS], expected)
    for made in (
        Translator(tiny_checkpoint, device="cpu", datastore=store, **whole.given(), settings="raw"),
        Translator(tiny_checkpoint, device="cpu", datastore=store, **FIXED, settings="raw"),
    ):
        assert made.settings == TranslationSettings(**FIXED).over(PRESETS["raw"])
        assert_same(made.translate(TEXTS), expected)
        assert made.retrieval(k=2) == made.retrieval(settings=RetrievalSettings(k=2))
    both = translator.retrieval(datastore=store, settings=whole, k=2)
    assert both is not None
    assert (both.config.k, both.config.temperature) == (2, 20.0)  # keywords count first
    with pytest.raises(SettingError, match="there is no setting 'kk'"):
        Request("Satz", store, kk=3)  # type: ignore[call-arg]


def test_a_request_can_say_none_of_a_cache_and_whose_store_is_meant(translator: Translator, store: Datastore) -> None:
    assert Request("Satz").datastore is NOT_GIVEN
    assert replace(Request("Satz", store, k=3), text="Wort") == Request("Wort", store, k=3)
    counted = Statistics()
    cached: CallKeywords = {
        "datastore": store,
        "k": 4,
        "interpolation_weight": 0.6,
        "temperature": 20.0,
        "cache": 1000.0,
    }
    cached |= {"cache": 1000.0, "statistics": counted}
    translator.translate([Request(text, cache=None) for text in TEXTS], **cached)
    assert counted.hits == 0 < counted.rows
    translator.translate([Request(text) for text in TEXTS], **cached)
    assert counted.hits > 0


def test_each_distinct_request_of_a_window_is_resolved_once(
    translator: Translator, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[RetrievalSettings | None] = []
    plain = Memories.retrieval

    def counted(memories: Memories, datastore: Any, settings: RetrievalSettings | None = None) -> Retrieval:
        resolved.append(settings)
        return plain(memories, datastore, settings)

    read: list[Path] = []
    monkeypatch.setattr(Memories, "retrieval", counted)
    monkeypatch.setattr(Profiles, "of", classmethod(lambda _cls, path: read.append(path)))
    stream = translator.stream(
        [Request(f"Satz {n}", store, k=2 + n % 2) for n in range(12)], window=6, beam=1, **FIXED, datastore=store
    )
    assert len(resolved) == 1  # of the call itself, whose errors show at once
    assert len(list(stream)) == 12
    assert [each and each.k for each in resolved[1:]] == [2, 3, 2, 3]  # two windows
    assert len(read) <= 1


# Ready made ---------------------------------------------------------------------------------------------------------


def test_a_retrieval_that_is_handed_over_is_used_as_it_is(
    translator: Translator, store: Datastore, ready: Retrieval
) -> None:
    counted = Statistics()
    before = replace(translator.statistics)
    found = translator.translate(TEXTS, retrieval=ready, statistics=counted, match=True)
    expected = translator.translate(TEXTS, datastore=store, match=True, **FIXED)
    assert_same(found, expected)
    assert [each.match for each in found] == [each.match for each in expected]
    assert counted.searches == counted.rows > 0
    assert translator.statistics.rows - before.rows == counted.rows  # of the second call only
    assert translator.signature(retrieval=ready) == translator.signature(datastore=store, **FIXED)
    assert translator.retrieval(retrieval=ready) is ready


def test_a_gate_of_ones_own_decides(translator: Translator, ready: Retrieval) -> None:
    counted = Statistics()
    found = translator.translate(TEXTS, retrieval=replace(ready, gate=RandomGate(0.0)), statistics=counted)
    assert counted.searches == 0 < counted.rows
    alone = translator.translate(TEXTS)
    assert [each.text for each in found] == [each.text for each in alone]


def test_a_retrieval_leaves_nothing_to_say(translator: Translator, store: Datastore, ready: Retrieval) -> None:
    with pytest.raises(SettingError, match="a retrieval includes a store and all settings: leave datastore, k out"):
        translator.translate(TEXTS, retrieval=ready, datastore=store, k=3)
    with pytest.raises(SettingError, match=r"cannot give k, because its call has a retrieval: also name a datastore"):
        translator.translate([Request("Satz", k=3)], retrieval=ready)
    found = translator.translate([Request("Satz 3", store, k=2), Request("Satz 3", None)], retrieval=ready)
    assert_same(found, [translator.translate("Satz 3", datastore=store, k=2), translator.translate("Satz 3")])


def test_an_explanation_can_be_of_one(translator: Translator, store: Datastore, ready: Retrieval) -> None:
    (mine,) = explain(translator, TEXTS[:1], retrieval=ready)
    (other,) = explain(translator, TEXTS[:1], datastore=store, **FIXED)
    assert mine == other


# What is no text ----------------------------------------------------------------------------------------------------


def test_by_default_one_bad_text_ends_a_stream_after_those_before_it(translator: Translator, store: Datastore) -> None:
    for odd, error, words in [
        (None, InputError, "found NoneType"),
        ("ab\ud800", InputError, "half of a surrogate pair"),
        (Request("Satz", store.path / "absent"), NotADatastoreError, "absent"),
        (Request("Satz", store, profile="absent"), SettingError, "no profile 'absent'"),
    ]:
        stream = translator.stream(["Satz 3", odd, "Satz 4"], beam=1)  # type: ignore[list-item]
        assert next(stream).source == "Satz 3"
        with pytest.raises(error, match=words):
            next(stream)
    with pytest.raises(InputError, match="half of a surrogate"):
        translator.translate("ab\ud800")


def test_asked_to_a_stream_carries_on_with_an_error_for_that_text(translator: Translator, store: Datastore) -> None:
    absent = Request("Satz 5", store.path / "absent")
    texts = ["Satz 3", *BAD, absent, Request("Satz", store, gate=0.5), Request("Satz 4", store, **FIXED)]
    with pytest.warns(NoTranslationWarning) as caught:
        found = translator.translate(texts, on_error="continue", window=3)
    said = [str(each.message) for each in caught if each.category is NoTranslationWarning]
    errors = [each.error for each in found]
    assert [error for error in errors if error is not None] == said
    assert [error is None for error in errors] == [True, False, False, False, False, False, True]
    for error, words in zip(said, ["NoneType", "int: 5", "surrogate", "absent", "has no gate"], strict=True):
        assert words in error
    assert [each.source for each in found] == ["Satz 3", "None", "5", "ab\ud800", "Satz 5", "Satz", "Satz 4"]
    for each in found[1:6]:
        assert (each.text, each.tokens, each.score, each.complete) == ("", (), float("-inf"), False)
        assert each.warnings == (Caution(NoTranslationWarning, each.error or ""),)
    expected = [translator.translate("Satz 3"), translator.translate("Satz 4", datastore=store, **FIXED)]
    assert_same([found[0], found[6]], expected)


def test_one_text_alone_raises_unless_told_to_carry_on(translator: Translator) -> None:
    with pytest.warns(NoTranslationWarning):
        found = translator.translate(["ab\ud800"], on_error="continue")
    assert found[0].error is not None
    one = translator.translate("ab\ud800", on_error="continue")
    assert one.error == found[0].error
    with pytest.raises(SettingError, match="on_error must be 'raise' or 'continue', got 'ignore'"):
        translator.translate("Satz", on_error="ignore")  # type: ignore[call-overload]


def test_what_gives_the_texts_may_fail_whatever_is_asked_for(translator: Translator) -> None:
    def texts() -> Iterator[str]:
        yield "Satz 3"
        raise NoTranslationError("nothing more")

    stream = translator.stream(texts(), beam=1, on_error="continue")
    assert next(stream).source == "Satz 3"
    with pytest.raises(NoTranslationError, match="nothing more"):
        next(stream)


# Warnings -----------------------------------------------------------------------------------------------------------


def test_a_translation_carries_the_warnings_that_are_its_own(translator: Translator) -> None:
    with pytest.warns(CutTranslationWarning) as caught:
        cut, empty = translator.translate(["Satz 3", ""], max_tokens=3)
    (message,) = [str(each.message) for each in caught]
    assert cut.warnings == (Caution(CutTranslationWarning, message),)
    assert empty.warnings == ()
