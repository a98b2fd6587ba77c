"""What must come out of a translation comes out: once each, well nested, around what it was around."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knnmt import Datastore, Glossary, Request, SegmentPair, Translator
from knnmt.config import Fading
from knnmt.corpus.glossary import Term
from knnmt.errors import InPiecesWarning, SettingError, SourceKeptWarning, TermWarning
from knnmt.protection.marked import Code, Marked, Role, read, written
from knnmt.retrieval.retriever import Retrieval
from knnmt.translator.memories import Memories
from support.made_strings import MadeString, StringMaker

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
STRINGS = 10_000  # of which a small part is in `make test`


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator("de-en", device="cpu", settings="raw")


@pytest.fixture(scope="module")
def random_translator(tiny_checkpoint: Path) -> Translator:
    """It knows no language, and by itself keeps nothing."""
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


def strings(seed: int, count: int) -> list[MadeString]:
    maker = StringMaker(seed)
    return [maker.make() for _ in range(count)]


def faults(translator: Translator, made: list[MadeString]) -> list[tuple[str, str, list[str]]]:
    found = translator.translate([each.text for each in made], protect=True, beam=2)
    return [
        (each.text, translation.text, wrong)
        for each, translation in zip(made, found, strict=True)
        if (wrong := each.faults(translation.text))
    ]


def test_nothing_is_lost_by_the_shipped_model(translator: Translator) -> None:
    assert faults(translator, strings(1, 16)) == []


def test_nothing_is_lost_by_a_model_that_keeps_nothing(random_translator: Translator) -> None:
    assert faults(random_translator, strings(2, 16)) == []


@pytest.mark.soak
def test_nothing_of_ten_thousand_strings_is_lost(translator: Translator, random_translator: Translator) -> None:
    assert faults(translator, strings(3, STRINGS * 4 // 5)) == []
    assert faults(random_translator, strings(4, STRINGS // 5)) == []


def test_the_check_of_made_strings_finds_faults() -> None:
    made = next(each for each in strings(5, 100) if "<b" in each.text and each.digits)
    assert made.faults(made.text) == []
    assert made.faults(made.text.replace("</b>", "", 1))
    assert made.faults(f"{made.text} {next(iter(made.digits))}")
    for raw in made.exact:
        assert made.faults(f"{made.text} {raw}")
        assert made.faults(made.text.replace(raw, "", 1))


def test_text_with_nothing_to_keep_is_decoded_as_before(translator: Translator) -> None:
    texts = ["Guten Morgen!", "Der Zug nach Leipzig fährt heute ab.", "", "  ", "Es ist gesperrt. Bitte warten Sie."]
    for settings in ({}, {"split_sentences": True}, {"n_best": 3}):
        before = translator.translate(texts, **settings)
        after = translator.translate(texts, protect=True, **settings)
        for one, other in zip(before, after, strict=True):
            assert (one.text, one.tokens, one.score) == (other.text, other.tokens, other.score)
            assert [each.text for each in one.alternatives] == [each.text for each in other.alternatives]
            assert other.warnings == ()


def test_free_translations_that_keep_all_stay_as_they_are(translator: Translator) -> None:
    text = "Die Datei %s wurde gelöscht."
    assert translator.translate(text, protect=True).text == translator.translate(text).text


def bold(words: str, pair: int = 1) -> Marked:
    return (Code("<b>", Role.OPENING, pair), words, Code("</b>", Role.CLOSING, pair))


def test_codes_of_marked_texts(translator: Translator) -> None:
    shown = Code("<ph id='1'/>", shown="%s")
    texts: list[Marked] = [
        ("Klicken Sie auf ", *bold("OK"), ", um fortzufahren."),
        ("Die Datei ", shown, " wurde gelöscht."),
        (Code("<g>", Role.OPENING, 3), "Die Datei wurde gelöscht.", Code("</g>", Role.CLOSING, 3)),
        ("Die Datei ", Code("<x/>"), " und die Datei ", Code("<y/>"), " fehlen."),
    ]
    first, second, third, fourth = translator.translate_marked(texts)
    assert first.marked is not None
    assert "<b>OK</b>" in written(first.marked)
    assert second.marked == ("File ", shown, " has been deleted.")
    assert third.marked == (texts[2][0], "The file has been deleted.", texts[2][2])
    assert fourth.marked is not None
    assert [part.raw for part in fourth.marked if isinstance(part, Code)].sort() == ["<x/>", "<y/>"].sort()
    assert [each.text for each in translator.stream([Request(texts[0])])] == [first.text]


def test_messages_of_icu_keep_their_skeleton(translator: Translator) -> None:
    text = "{count, plural, =0 {Keine Datei} one {# Datei} other {# Dateien in <b>{0}</b>}}"
    found = translator.translate(text, protect=True).text
    assert found == "{count, plural, =0 {No file} one {# file} other {# files in <b>{0}</b>}}"


def test_white_space_comes_back(translator: Translator) -> None:
    found = translator.translate("Der Zug fährt\nheute 20\u00a0Minuten später ab.\tDanke!  ", protect=True).text
    assert found.count("\n") == 1
    assert "20\u00a0minutes" in found
    assert found.endswith("\tThank you!  ")


def test_accelerators_get_one_mark(translator: Translator) -> None:
    for text in ("&Datei öffnen", "Seite &löschen", "_Datei öffnen"):
        found = translator.translate(text, protect=True).text
        mark = "_" if "_" in text else "&"
        assert found.count(mark) == 1
        assert found[found.index(mark) + 1].isalpha()
    assert "&" in translator.translate("R&D ist wichtig.", protect=True).text


def test_an_underscore_before_a_word_of_a_short_label_is_an_accelerator(translator: Translator) -> None:
    found = translator.translate("Alles _auswählen", protect=True).text
    assert found.count("_") == 1
    assert found.replace("_", "") == translator.translate("Alles auswählen", protect=True).text
    for text in ("Spalte _id", "Die Spalte _auswahl der Tabelle wurde heute nicht gefunden."):
        assert translator.translate(text, protect=True).text == translator.translate(text).text


def test_line_ends_written_with_a_backslash_part_words(translator: Translator) -> None:
    def translated(text: str) -> str:
        return translator.translate(text, protect=True).text

    assert translated(r"Die Datei\nwurde gelöscht.") == r"The file\nhas been deleted."
    assert translated(r"\n\tDanke!\n") == r"\n\tThank you!\n"
    assert translated(r"\n") == r"\n"
    assert r"C:\neu\test" in translated(r"Die Datei C:\neu\test wurde gelöscht.")


def test_quoted_braces_of_messages_stay_quoted(translator: Translator) -> None:
    found = translator.translate("Das ist ''{0}'' und '{'Datei'}'.", protect=True).text
    assert "''{0}''" in found
    assert found.count("'{'") == found.count("'}'") == 1


def test_numbers_keep_their_digits(translator: Translator) -> None:
    found = translator.translate("Der Termin um 14 Uhr am 31.12.2024 kostet 1.234,56 €.", protect=True).text
    assert "14" in found
    assert "€" in found
    assert re.search(r"1[.,]?234[.,]56", found)


def test_what_the_model_cannot_do_is_told(random_translator: Translator) -> None:
    """With no room for what is required, pieces are translated, or the source stays."""
    text = "Der Ordner {ein_sehr_langer_name_1} wurde nicht gefunden"
    (found,) = random_translator.translate([text], protect=True, max_tokens=12)
    assert {each.kind for each in found.warnings} & {InPiecesWarning, SourceKeptWarning}
    assert found.text.count("{ein_sehr_langer_name_1}") == 1


def test_terms_are_there_or_told(translator: Translator) -> None:
    glossary = Glossary([("Datei", "document"), ("Zug", "coach"), ("Zug", "tram")])
    first, second = translator.translate(["Die Dateien wurden gelöscht.", "Danke!"], glossary=glossary)
    assert "document" in first.text.lower()
    assert "file" not in first.text.lower()
    assert second.text == "Thank you!"
    spaced = translator.translate("Öffnen Sie die Datei.", glossary=glossary)  # there, the model writes a lone space
    assert spaced.text == "Open the document."
    (third,) = translator.translate([Request("Der Zug fährt.", glossary=glossary)])
    assert "coach" in third.text.lower()
    assert [each.kind for each in third.warnings] == [TermWarning]
    assert "tram" in third.warnings[0].message
    impossible = Glossary([Term("Zug", "a\nb")])  # the vocabulary has no line end
    told = translator.translate("Der Zug fährt.", glossary=impossible)
    assert [each.kind for each in told.warnings] == [TermWarning]


def test_with_a_memory(random_translator: Translator, tmp_path: Path) -> None:
    pairs = [SegmentPair(f"Datei {{{n}}} fehlt", f"File {{{n}}} is missing", f"m#{n}") for n in range(9)]
    store = Datastore.build(tmp_path / "s", pairs, random_translator.engine)
    made = strings(6, 15)
    found = random_translator.translate(
        [each.text for each in made], datastore=store, protect=True, beam=2, evidence=True
    )
    assert [each.faults(translation.text) for each, translation in zip(made, found, strict=True)] == [[]] * len(made)


def test_a_text_does_not_depend_on_what_others_must_keep(
    random_translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ fades by the mean distance of a sentence's rows, of which there are more if more must be kept."""
    pairs = [SegmentPair(f"Satz {i} ja", f"sentence {i} yes", f"m#{i}") for i in range(30)]
    store = Datastore.build(tmp_path / "s", pairs, random_translator.engine)
    fading = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)
    found = Memories.retrieval

    def fades(memories: Memories, *asked: Any) -> Retrieval:
        retrieval = found(memories, *asked)
        return replace(retrieval, config=replace(retrieval.config, fading=fading))

    monkeypatch.setattr(Memories, "retrieval", fades)
    texts = ["Satz 7 ja 8", "Satz 12", "Satz 1 2 3 4 5 6 7"]
    together, alone = (
        [
            (translation.text, round(translation.score, 4))
            for group in groups
            for translation in random_translator.translate(
                group, datastore=store, protect=True, beam=1, k=4, interpolation_weight=0.6, max_tokens=30
            )
        ]
        for groups in ([texts], [[text] for text in texts])
    )
    assert together == alone


def test_several_translations_all_keep_it(translator: Translator) -> None:
    found = translator.translate("%(count)d Nachrichten in {0} gefunden.", protect=True, n_best=3)
    assert all(each.text.count("%(count)d") == each.text.count("{0}") == 1 for each in (found, *found.alternatives))


def test_settings_are_checked(translator: Translator) -> None:
    with pytest.raises(SettingError, match="tags must be 'auto', 'xml', 'html' or 'none', got 'sgml'"):
        translator.translate("x", protect=True, tags="sgml")  # type: ignore[call-overload]


def test_reading_marked_text() -> None:
    assert read(("a ", Code("<x/>", shown="%s"), " b")) == "a %s b"
