"""A memory's own text comes back as it stands there, by decoding, whatever the size of the store; near text as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt import Datastore, SegmentPair, Translator
from knnmt.calibration.index_choice import prepare
from knnmt.datastore.building import BuildConfig
from knnmt.engine.transformer import TransformerEngine

LINES = (Path(__file__).parents[2] / "examples" / "memory.tsv").read_text(encoding="utf-8").splitlines()
TEXTS = [line.partition("\t") for line in LINES]
MEMORY = [SegmentPair(source, target, f"memory.tsv#{number}") for number, (source, _, target) in enumerate(TEXTS)]
LABELS = [("Gesperrt", "Locked"), ("Speichern unter …", "Save As…"), ("Ansicht", "View"), ("Entfernen", "Remove")]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(device="cpu", settings="raw")


@pytest.fixture(scope="module")
def labels(engine: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    pairs = [SegmentPair(*texts, f"labels.tsv#{number}") for number, texts in enumerate(LABELS)]
    store = Datastore.build(tmp_path_factory.mktemp("labels") / "s", [*pairs, *MEMORY[:20]], engine)
    prepare(store, engine)
    return store


@pytest.mark.parametrize(
    ("size", "stores"), [(1, 6), (2, 3), (5, 2), (40, 1), pytest.param(len(MEMORY), 1, marks=pytest.mark.soak)]
)
def test_every_stored_source_comes_back_as_its_target(
    translator: Translator, tmp_path: Path, size: int, stores: int
) -> None:
    for number in range(stores):
        pairs = MEMORY[number::stores][:size]
        place = tmp_path / str(number)
        Datastore.build(place, pairs, translator.engine)
        sources = [pair.source for pair in pairs]
        found = translator.translate(sources, datastore=place, forms=False)
        assert [each.text for each in found] == [pair.target for pair in pairs]


@pytest.mark.parametrize("settings", [{"beam": 1}, {"evidence": True}, {"batch_size": 3}], ids=str)
def test_every_way_to_decode_obeys(translator: Translator, labels: Datastore, settings: dict[str, int]) -> None:
    found = translator.translate([pair.source for pair in MEMORY[:20]], datastore=labels, **settings)  # type: ignore[call-overload]
    assert [each.text for each in found] == [pair.target for pair in MEMORY[:20]]


def test_an_engine_in_int8_obeys_a_store_of_float32(engine: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", MEMORY[:30], engine)
    prepare(store, engine)
    small = Translator(device="cpu", dtype="int8", datastore=store, settings="raw")
    found = small.translate([pair.source for pair in MEMORY[:30]])
    assert [each.text for each in found] == [pair.target for pair in MEMORY[:30]]


@pytest.mark.parametrize(
    "make", [lambda path: BuildConfig(), lambda path: BuildConfig(key_dtype="float32")], ids=["float16", "float32"]
)
def test_of_several_targets_one_comes_back(
    translator: Translator, tmp_path: Path, make: Callable[[Path], BuildConfig]
) -> None:
    targets = ["Account locked", "Account on hold", "Account barred"]
    pairs = [SegmentPair("Konto gesperrt", target, f"m#{number}") for number, target in enumerate(targets)]
    Datastore.build(tmp_path / "s", [*pairs, *pairs[:1], *MEMORY[:5]], translator.engine, make(tmp_path))
    assert translator.translate("Konto gesperrt", datastore=tmp_path / "s").text == "Account locked"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Gesperrt.", "Locked."),
        ("Gesperrt!", "Locked!"),
        ("gesperrt", "locked"),
        ("GESPERRT", "LOCKED"),
        ("Speichern unter", "Save As"),
        ("Speichern unter...", "Save As..."),
        ("Ansicht:", "View:"),
        ("Entfernen?", "Remove?"),
    ],
)
def test_a_form_of_a_stored_source_is_translated_as_that(
    translator: Translator, labels: Datastore, text: str, expected: str
) -> None:
    found = translator.translate(text, datastore=labels, evidence=True)
    assert found.text.strip() == expected
    assert found.stored_source in [source for source, _ in LABELS]
    assert all(token.span is not None and token.span[1] <= len(found.text) for token in found.tokens)
    assert translator.translate(text, datastore=labels, forms=False).stored_source is None


@pytest.mark.parametrize(
    ("text", "expected"), [(" Gesperrt", " Locked"), ("&Gesperrt", "&Locked"), ("&Gesperrt!", "&Locked!")]
)
def test_white_space_and_accelerators_lose_no_match(
    translator: Translator, labels: Datastore, text: str, expected: str
) -> None:
    assert translator.translate(text, datastore=labels).text == expected


def test_text_that_is_stored_whole_is_not_split(translator: Translator, tmp_path: Path) -> None:
    pairs = [SegmentPair("Fertig. Bitte warten.", "All done, hang on.", "m#0"), *MEMORY[:10]]
    Datastore.build(tmp_path / "s", pairs, translator.engine)
    found = translator.translate("Fertig. Bitte warten.", datastore=tmp_path / "s", split_sentences=True)
    assert found.text == "All done, hang on."
    assert found.stored_source is None
