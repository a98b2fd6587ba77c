"""The rows of a translated document: what they say, and which come first. The translator is scripted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from knnmt.documents.document import Document
from knnmt.documents.json_strings import JsonStrings
from knnmt.documents.kept import Kept
from knnmt.documents.po import PoDocument
from knnmt.documents.translating import Outcome, translate_document
from knnmt.errors import SourceKeptWarning
from knnmt.protection.marked import Marked
from knnmt.segments.covering import Coverage
from knnmt.segments.matches import Match
from knnmt.translator.translation import Caution, Translation

PLAIN = Translation("", "", (), 0.0, kind="with memory")
SCRIPT = {
    "kaputt": replace(PLAIN, kind=None, error="nothing was found"),
    "unsicher": replace(PLAIN, certainty=31, coverage=Coverage(0.41239, 0.2)),
    "sicher": replace(PLAIN, certainty=97),
    "gewarnt": replace(PLAIN, certainty=99, warnings=(Caution(SourceKeptWarning, "look here"),)),
    "bekannt": replace(
        PLAIN, kind="exact match", certainty=100, match=Match("bekannt", "known", "a.tmx#4", 100, exact=True)
    ),
}


def in_capitals(texts: Sequence[Marked], *_: object, script: Mapping[str, Translation] = SCRIPT) -> list[Translation]:
    sources = [str(text[0]) for text in texts]
    return [replace(script[source], source=source, text=source.upper()) for source in sources]


def scripted(document: Document, script: Mapping[str, Translation] = SCRIPT) -> Outcome:
    with Kept(None, "") as kept:
        return translate_document(document, partial(in_capitals, script=script), kept)


def catalog(*entries: str) -> PoDocument:
    return PoDocument("".join(f"{entry}\n\n" for entry in entries).encode(), "x.po")


def entry(source: str, target: str = "", flag: str = "") -> str:
    return f'{flag}msgid "{source}"\nmsgstr "{target}"'


def test_rows_begin_with_what_to_look_at_first() -> None:
    old = [entry("fertig", "done"), entry("vage", "vague", "#, fuzzy\n"), entry("100 %")]
    rows = scripted(catalog(*old, *map(entry, reversed(SCRIPT)))).rows
    assert [(row.source, row.text, row.state) for row in rows] == [
        ("kaputt", "", "failed"),
        ("gewarnt", "GEWARNT", "new"),
        ("unsicher", "UNSICHER", "new"),
        ("sicher", "SICHER", "new"),
        ("bekannt", "BEKANNT", "new"),
        ("100 %", "100 %", "new"),
        ("vage", "vague", "fuzzy"),
        ("fertig", "done", "finished"),
    ]
    first, warned, unsure, *_, known, copied, _, _ = [row.as_json() for row in rows]
    base = {"kind": "with memory", "state": "new"}
    assert first == {
        "unit": "line 23",
        "source": "kaputt",
        "text": "",
        "error": "nothing was found",
        "kind": None,
        "state": "failed",
    }
    warning = {"kind": "SourceKeptWarning", "message": "look here"}
    assert warned == base | {
        "unit": "line 14",
        "source": "gewarnt",
        "text": "GEWARNT",
        "certainty": 99,
        "warnings": [warning],
    }
    assert (unsure["certainty"], unsure["coverage"]) == (31, {"covered": 0.4124})
    assert known["match"] == {"source": "bekannt", "target": "known", "origin": "a.tmx#4", "score": 100}
    assert (copied["kind"], "certainty" in copied) == (None, False)


def test_without_a_tuned_store_what_the_memory_knows_least_comes_first() -> None:
    untuned = {
        "a": replace(PLAIN, coverage=Coverage(0.9, 0.9)),
        "b": replace(PLAIN, coverage=Coverage(0.1, 0.1)),
        "c": replace(PLAIN, match=Match("c d", "x", "y", 60, exact=False), coverage=Coverage(0.1, 0.1)),
    }
    assert [row.source for row in scripted(catalog(*map(entry, untuned)), untuned).rows] == ["b", "c", "a"]


def test_a_resumed_run_has_the_rows_of_the_whole(tmp_path: Path) -> None:
    document, place = catalog(*map(entry, SCRIPT)), tmp_path / "x.po"
    with suppress(KeyboardInterrupt), Kept(place, "") as kept:
        translate_document(document, in_capitals, kept)
        raise KeyboardInterrupt
    asked: list[str] = []

    def translate(texts: Sequence[Marked], *_: object) -> list[Translation]:
        asked.extend(str(text[0]) for text in texts)
        return in_capitals(texts)

    with Kept(place, "") as kept:
        resumed = translate_document(document, translate, kept)
    assert asked == ["kaputt"]
    assert resumed.rows == scripted(document).rows


def test_a_unit_without_words_gets_its_source() -> None:
    outcome = scripted(catalog(entry("10: 100"), entry("https://knnmt.example/a"), entry("sicher"), entry(" ")))
    assert (outcome.translated, outcome.copied, outcome.kept) == (1, 2, 1)
    copied = b'#, fuzzy\nmsgid "https://knnmt.example/a"\nmsgstr "https://knnmt.example/a"'
    assert copied in outcome.data
    assert b'msgid " "\nmsgstr ""' in outcome.data


def test_a_document_of_one_language_stays_as_it_is_where_it_has_no_words() -> None:
    text = json.dumps({"a": "sicher", "b": "10\u20ac / 5", "c": 5})
    outcome = scripted(JsonStrings(text.encode(), "x.json"))
    assert outcome.data.decode() == text.replace("sicher", "SICHER")
    assert (outcome.translated, outcome.copied, outcome.kept) == (1, 0, 1)
    assert [row.source for row in outcome.rows] == ["sicher", "10\u20ac / 5"]
