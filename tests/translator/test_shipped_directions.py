"""A translator without a named model: the languages of a call, its stores or its texts choose the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt import Datastore, OpenStores, Request, SegmentPair, Translator, build
from knnmt.errors import LanguagesRequiredError, SettingError
from knnmt.retrieval.open_store import OpenStore

PAIRS = [
    SegmentPair("Die Anzeige blinkt rot.", "The beacon flashes crimson.", "test"),
    SegmentPair("Öffnen Sie das Fenster.", "Pop the pane open.", "test"),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("directions")
    swapped = [SegmentPair(pair.target, pair.source, "test") for pair in PAIRS]
    build(PAIRS, place / "de-en.store", device="cpu")
    build(swapped, place / "en-de.store", device="cpu", source_lang="en")
    return {"de-en": place / "de-en.store", "en-de": place / "en-de.store"}


@pytest.fixture
def translator() -> Iterator[Translator]:
    with Translator(device="cpu") as made:
        yield made


def test_texts_choose_the_model(translator: Translator) -> None:
    alone = {name: Translator(name, device="cpu") for name in ("de-en", "en-de")}
    assert translator.translate("Datei speichern") == alone["de-en"].translate("Datei speichern")
    assert translator.translate("Save the file.") == alone["en-de"].translate("Save the file.")
    texts = ["OK", "Save the file.", "Layout"]  # one direction for all texts of a call
    assert translator.translate(texts) == alone["en-de"].translate(texts)
    with pytest.raises(LanguagesRequiredError, match="source_lang in Python"):
        translator.translate("OK")
    assert Translator(device="cpu", source_lang="en").translate("OK").text
    assert translator.translate(["…", ""])[0].text == "…"
    assert translator.translate(Request("OK", source_lang="en")) == alone["en-de"].translate("OK")
    with pytest.raises(SettingError, match="--model Helsinki-NLP/opus-mt-de-fr"):
        translator.translate(Request("Datei", source_lang="de", target_lang="fr"))


def test_the_first_texts_of_a_stream_choose_for_the_later_ones(translator: Translator) -> None:
    texts = iter(["Save the file.", "OK", "Speichern"])
    expected = Translator("en-de", device="cpu").translate(["Save the file.", "OK", "Speichern"])
    assert list(translator.stream(texts, window=1)) == expected


def test_a_store_chooses_the_model(translator: Translator, stores: dict[str, Path]) -> None:
    texts = {"de-en": PAIRS[0].source, "en-de": PAIRS[0].target}
    expected = {
        name: Translator(name, device="cpu", datastore=store).translate(texts[name]) for name, store in stores.items()
    }
    assert expected["en-de"].text == "Die Anzeige blinkt rot."
    for name, store in stores.items():
        assert Translator(device="cpu", datastore=store).translate(texts[name]) == expected[name]
        assert translator.translate(texts[name], datastore=store) == expected[name]
    requests = [Request(texts[name], store) for name, store in stores.items()]
    assert translator.translate(requests) == list(expected.values())
    with Translator(device="cpu", datastore=stores["de-en"]) as both:  # other stores than its own
        assert both.translate(requests) == list(expected.values())
        assert both.translate(texts["de-en"]) == expected["de-en"]
        assert both.translate("Save the file.", datastore=None).text == "Speichern Sie die Datei."


def test_the_stores_of_both_directions_that_texts_need_are_opened_once(
    stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def noting(store: Datastore, *options: Any) -> OpenStore:
        opened.append(store.path)
        return OpenStore(store, *options)

    monkeypatch.setattr("knnmt.translator.open_store.OpenStore", noting)
    requests = [Request(PAIRS[0].source, stores["de-en"]), Request(PAIRS[0].target, stores["en-de"])]
    with Translator(device="cpu", open_stores=OpenStores(1)) as both:
        for _ in range(2):
            assert both.translate(requests, beam=1)[1].text == PAIRS[0].source
        assert opened == list(stores.values())
        both.translate(requests[0], beam=1)
        assert [both.for_store(each).memories.holds(each) for each in stores.values()] == [True, False]


@pytest.mark.filterwarnings("ignore::knnmt.errors.NoTranslationWarning")
def test_a_bad_store_ends_only_its_text(translator: Translator, tmp_path: Path, stores: dict[str, Path]) -> None:
    requests = [Request("Die Anzeige blinkt rot.", tmp_path), Request(PAIRS[0].target, stores["en-de"])]
    bad, good = translator.translate(requests, on_error="continue")
    assert "expected a datastore" in (bad.error or "")
    assert good.text == PAIRS[0].source


def test_a_named_model_keeps_its_languages(stores: dict[str, Path]) -> None:
    named = Translator("de-en", device="cpu")
    assert not named.chooses_model
    with pytest.raises(SettingError, match="the model translates de to en"):
        named.translate(Request("Save", source_lang="en"))
    assert named.translate("Save the file.")  # taken for German, as named
    with pytest.raises(SettingError, match=r"goes from de to en, which the model en-de does not.*--model de-en$"):
        Translator("en-de", device="cpu", datastore=stores["de-en"])


def test_a_memory_chooses_the_model_of_a_store(tmp_path: Path) -> None:
    made = build([SegmentPair(pair.target, pair.source, "test") for pair in PAIRS], tmp_path / "s", device="cpu")
    manifest = made.store.manifest
    assert (manifest.model_name, manifest.source_language, manifest.target_language) == ("en-de", "en", "de")
