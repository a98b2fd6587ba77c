"""What `build` strips, `translate` understands: accelerators, line breaks, white space, units of several sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt import Datastore, Request, SegmentPair, Translator, explain
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.sources import HeldSources
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.settings import RetrievalKeywords
from knnmt.translator.segments import TextSegment, cut_to_fit, laid_out, segments_of

_TEXTS = [
    ("&Datei", "&Dossier"),
    ("Speichern _unter …", "Keep _thus…"),
    ("Dr~ucken", "~Scribe"),
    ("Spalte _id", "pillar _id"),
    ("Das Magazin ist leer.\nDas Magazin nachfüllen.\n", "The hoard is bare.\nReplenish the hoard.\n"),
    ("Nicht ausstecken. Auf die Lampe warten.", "Leave it plugged. Abide the lamp."),
    ("Eine Zeile, die\nhier umbricht", "A verse that\nturns here"),
]
MEMORY = [SegmentPair(*sides, f"a.po#{number}") for number, sides in enumerate(_TEXTS)]
STRICT: RetrievalKeywords = {"k": 4, "interpolation_weight": 0.95, "temperature": 5.0}


@pytest.fixture(scope="module")
def store(engine: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "own.store", MEMORY, engine)


@pytest.fixture(scope="module")
def translator(store: Datastore) -> Translator:
    return Translator(device="cpu", datastore=store, **STRICT, settings="raw")


# What comes out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("&Datei", "&Dossier"),
        ("Datei", "Dossier"),
        ("_Datei", "_Dossier"),
        ("Da&tei", "&Dossier"),
        ("Speichern _unter …", "Keep _thus…"),
        ("Speichern unter …", "Keep thus…"),
        ("Speichern &unter …", "Keep &thus…"),
        ("\t~Speichern  unter\u00a0…  ", "\tKeep ~thus…  "),
        ("Drucken", "Scribe"),
        ("Spalte _id", "pillar _id"),
        ("  Spalte\u202f_id\n", "  pillar _id\n"),
        ("Das Magazin ist leer.\nDas Magazin nachfüllen.\n", "The hoard is bare.\nReplenish the hoard.\n"),
        ("Das Magazin ist leer.\r\nDas Magazin nachfüllen.", "The hoard is bare.\nReplenish the hoard."),
        ("Das Magazin ist leer. Das Magazin nachfüllen.", "The hoard is bare. Replenish the hoard."),
        ("Das Magazin nachfüllen.", "Replenish the hoard."),
        ("Das Magazin nachfüllen.\n\nDas Magazin ist leer.", "Replenish the hoard.\n\nThe hoard is bare."),
        ("Nicht ausstecken. Auf die Lampe warten.", "Leave it plugged. Abide the lamp."),
        (" Nicht ausstecken.\u00a0 Auf die Lampe warten.", " Leave it plugged. Abide the lamp."),
        ("Eine Zeile, die\nhier umbricht", "A verse that\nturns here"),
        ("Eine Zeile, die hier umbricht", "A verse that turns here"),
    ],
)
def test_the_memory_is_found_and_its_translation_comes_out(
    translator: Translator, source: str, expected: str, split: bool
) -> None:
    found = translator.translate(source, split_sentences=split, match=True)
    assert found.source == source
    assert found.text == expected
    if "\n\n" not in source:
        assert found.match is not None
        assert found.match.exact
        assert found.match.score == 100


@pytest.mark.parametrize("split", [False, True])
def test_lines_are_kept_where_a_text_that_the_memory_holds_comes_out_otherwise(
    translator: Translator, split: bool
) -> None:
    """With λ = 0 the model alone decides."""
    text = MEMORY[4].source
    found = translator.translate([text, "Ja."], interpolation_weight=0.0, split_sentences=split)
    lines = [each.text for each in translator.translate(text.split("\n"), interpolation_weight=0.0)]
    assert found[0].text == "\n".join(lines)
    assert found[1].source == "Ja."
    assert "hoard" not in found[0].text


def test_requests_without_a_memory_or_with_one_that_keeps_marks_are_left_alone(
    translator: Translator, engine: TransformerEngine, tmp_path: Path
) -> None:
    kept = Datastore.build(tmp_path / "kept", MEMORY[:1], engine, BuildConfig(accelerators="keep"))
    alone, with_kept = translator.translate([Request("&Datei", None), Request("&Datei", kept)])
    assert alone.text == translator.translate("&Datei", datastore=None).text != "&Dossier"
    assert with_kept.text == "&Dossier"
    assert with_kept.tokens[0].text == "▁&"
    unlike = translator.translate("Datei", datastore=kept, match=True).match
    assert unlike is not None
    assert not unlike.exact


def test_tokens_are_where_they_stand_in_what_comes_out(translator: Translator) -> None:
    text = "  Das Magazin ist leer.\nDas Magazin nachfüllen.\n"
    found = translator.translate(text, evidence=True)
    spans = [token.span for token in found.tokens]
    assert "".join(found.text[slice(*span)] for span in spans if span) == "Thehoardisbare.Replenishthehoard."
    assert spans == sorted(span for span in spans if span)
    marked = translator.translate("Speichern &unter …", evidence=True)
    assert "".join(marked.text[slice(*token.span)] for token in marked.tokens if token.span) == "Keepthus…"
    (explained,) = explain(translator, ["Speichern &unter …"])
    assert [word.text for word in explained.words] == ["Keep", "thus", "…", ""]
    assert explained.translation.match is not None
    assert explained.translation.match.source == "Speichern _unter …"


def test_white_space_around_a_text_is_given_back_without_a_memory_too(translator: Translator) -> None:
    bare = translator.translate("Guten Morgen!", datastore=None)
    for split in (False, True):
        assert translator.translate(" \tGuten Morgen!\u00a0\n", datastore=None, split_sentences=split).text == (
            f" \t{bare.text}\u00a0\n"
        )


# Segments -------------------------------------------------------------------------------------------------------------


def test_what_is_no_accelerator_stays(store: Datastore) -> None:
    held = HeldSources(store)
    for text in ["AT&T", "Q&A", "A & B", "R&D-Kosten", "&amp;", "snake_case", "_foo_", "__init__", "Datei my_file.txt"]:
        assert segments_of(text, by_sentence=True, held=held) == [TextSegment(text)]
    assert segments_of("Die Spalte _id", by_sentence=False, held=held) == [TextSegment("Die Spalte _id")]
    assert segments_of("Schließen und _beenden", by_sentence=False, held=held)[0].mark == ""
    assert segments_of("_Schließen", by_sentence=False, held=held)[0].mark == "_"  # a label can be nothing else
    assert segments_of("&Datei", by_sentence=False) == [TextSegment("&Datei")]


def test_lines_are_segments_and_wrapped_ones_are_not(store: Datastore) -> None:
    text = "Farben:\n  - rot\n  - grün und\n    blau\n"
    segments = segments_of(text, by_sentence=False)
    assert [(each.text, each.after) for each in segments] == [
        ("Farben:", "\n  "),
        ("- rot", "\n  "),
        ("- grün und\n    blau", "\n"),
    ]
    assert [each.text for each in segments_of(MEMORY[4].source, by_sentence=True)] == MEMORY[4].source.split("\n")[:2]
    assert len(segments_of(MEMORY[4].source, by_sentence=True, held=HeldSources(store))) == 1


def test_a_translation_that_is_the_memorys_keeps_its_form(store: Datastore) -> None:
    """The translator chose it, and `translate` needs no exact match to find it."""
    (segment,) = segments_of("Spalte _id", by_sentence=False, held=HeldSources(store))
    assert laid_out(segment, "pillar _id") == "pillar _id"
    (segment,) = segments_of("SPALTE _ID", by_sentence=False, held=HeldSources(store))
    assert laid_out(segment, "pillar _id") == "PILLAR _ID"
    (segment,) = segments_of("Spalte", by_sentence=False, held=HeldSources(store))
    assert laid_out(segment, "pillar") == "Pillar"


def test_other_translations_than_the_memorys_keep_what_the_model_gave(store: Datastore) -> None:
    held = HeldSources(store)
    (segment,) = segments_of(MEMORY[4].source, by_sentence=False, held=held)
    assert laid_out(segment, "The hoard is bare. Something else.") == "The hoard is bare. Something else."
    (segment,) = segments_of("Speichern &unter …", by_sentence=False, held=held)
    assert laid_out(segment, "(Store as)") == "(&Store as)…"


def test_the_first_part_of_an_overlong_segment_has_the_mark() -> None:
    parts = cut_to_fit(TextSegment("Eins, zwei, drei", " ", "!", "&"), lambda text: len(text) < 8)
    assert [part.mark for part in parts] == ["&", *[""] * (len(parts) - 1)]
    assert len(parts) > 1
    assert laid_out(parts[0], "one,") == "&One,"
