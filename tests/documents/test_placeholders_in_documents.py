"""The format of a document decides what is a placeholder, and a model that keeps nothing loses none."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from knnmt.documents.checking import check_units
from knnmt.documents.document import Document, State, Unit
from knnmt.documents.json_strings import JsonStrings
from knnmt.documents.kept import Kept
from knnmt.documents.markdown import MarkdownPage
from knnmt.documents.po import PoDocument
from knnmt.documents.subtitles import Subtitles
from knnmt.documents.translating import translate_document
from knnmt.protection.marked import Code, written
from knnmt.translator.translator import Translator

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu")


def translated(document: Document, translator: Translator, *own: str) -> str:
    with Kept(None, "") as kept:
        outcome = translate_document(document, partial(translator.translate_marked, beam=2, placeholders=own), kept)
    assert outcome.failures == {}
    return outcome.data.decode()


@pytest.mark.parametrize(
    "placeholder",
    ["__count__", "__name__", "[%count%]", "OmegaT.css", "$t(common:title)", "{{- name}}", "%(e)s", "@:a.b"],
)
def test_strings_of_json_keep_theirs(placeholder: str, translator: Translator) -> None:
    texts = {"a": f"Noch {placeholder} Tage", "b": f"{placeholder}", "c": f"Die Datei ({placeholder})."}
    found = json.loads(translated(JsonStrings(json.dumps(texts).encode(), "x.json"), translator))
    assert [each.count(placeholder) for each in found.values()] == [1, 1, 1]
    assert found["b"] == placeholder


def test_override_codes_of_subtitles_stay_where_they_are(translator: Translator) -> None:
    lines = [r"{\an8}Ein Schiff kommt.", r"Das ist {\i1}sehr{\i0} gut", r"{\pos(10,20)\b1}Nein", r"Ja\NNein"]
    cues = [f"{number}\n00:00:0{number},000 --> 00:00:0{number},900\n{line}\n" for number, line in enumerate(lines, 1)]
    document = Subtitles("\n".join(cues).encode(), "film.srt")
    assert [part.raw for part in document.units[1].source if isinstance(part, Code)] == [r"{\i1}", r"{\i0}"]
    found = translated(document, translator)
    assert r"{\an8}" in found
    assert found.index(r"{\an8}") == found.index("900\n") + 4  # at the beginning of its cue
    for code in (r"{\i1}", r"{\i0}", r"{\pos(10,20)\b1}", r"\N"):
        assert found.count(code) == 1


def test_flags_of_a_catalog_decide(translator: Translator) -> None:
    catalog = (
        'msgid "Datei ~a fehlt"\nmsgstr ""\n\n'
        '#, lisp-format\nmsgid "Ordner ~a fehlt"\nmsgstr ""\n\n'
        '#, fuzzy, no-c-format\nmsgid "Das %title fehlt"\nmsgstr ""\n\n'
        '#, c-format\nmsgid "Nur %sekunden"\nmsgstr ""\n'
    )
    document = PoDocument(catalog.encode(), "x.po")
    assert [unit.text_kinds for unit in document.units] == [
        ("po", "unflagged"),
        ("po", "lisp-format"),
        ("po", "no-c-format", "unflagged"),
        ("po", "c-format"),
    ]
    found = translated(document, translator)
    assert found.count("~a") >= 3  # in both sources and in the second translation
    assert found.count("%title") == 2
    assert found.count("%s") == 2


def test_bold_type_of_markdown_is_no_placeholder(translator: Translator) -> None:
    document = MarkdownPage(b"Das ist __wichtig__ heute.\n", "x.md")
    assert document.units[0].text_kinds == ("markdown",)
    assert "wichtig" in "".join(part for part in document.units[0].source if isinstance(part, str))
    assert translated(document, translator).count("__") == 2


def test_patterns_of_ones_own_are_kept_and_checked(translator: Translator) -> None:
    document = JsonStrings(b'{"a": "Noch ~~count~~ Tage"}', "x.json")
    assert "~~count~~" in translated(document, translator, "~~*~~")
    unit = Unit("u", ("Noch ~~count~~ Tage",), ("Still ~~zahl~~ days",), State.TRANSLATED)
    assert [each.message for each in check_units("x", [unit], placeholders=("~~*~~",)).problems] == [
        "~~count~~ once in the source, not in the translation",
        "~~zahl~~ not in the source, once in the translation",
    ]
    assert check_units("x", [unit]).problems == ()


def test_a_check_knows_the_format_of_a_unit() -> None:
    def messages(kind: str) -> list[str]:
        unit = Unit("u", ("Noch __count__ Tage",), ("Still __zahl__ days",), State.TRANSLATED, text_kinds=(kind,))
        return [each.message for each in check_units("x", [unit]).problems]

    assert len(messages("json")) == 2
    assert messages("text") == []
    document = JsonStrings(b'{"a": "Noch __count__ Tage"}', "x.json")
    assert [written(unit.source) for unit in document.units if unit.text_kinds == ("json",)] == ["Noch __count__ Tage"]


def test_a_check_names_numbers_that_the_source_lacks() -> None:
    def found(source: str, target: str) -> list[str]:
        unit = Unit("u", (source,), (target,), State.TRANSLATED)
        return [f"{each.kind}: {each.message}" for each in check_units("x", [unit]).problems]

    assert found("Seit Jahren", "For 35 years") == ["number: 35 not in the source, once in the translation"]
    assert found("Seit zwei Jahren", "For 2 years") == []
    assert found("Seit 2 Jahren", "For 2 or 2 years") == ["number: 2 once in the source, twice in the translation"]
    assert found("Flow hinzu", "Add %(e)s") == ["placeholder: %(e)s not in the source, once in the translation"]
