from __future__ import annotations

from pathlib import Path
from typing import SupportsIndex

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.po_entries import PoLine, po_entries
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError, MalformedMemoryError
from support.memories import contexts, read, read_with_origins

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: {}\\n"\n\n'
GERMAN = HEADER.format("de_DE")
TO_GERMAN = {"source_language": "en", "target_language": "de"}

CATALOG = (
    "# Erste Fassung\n"
    + GERMAN
    + r"""#: fenster.c:12
msgid "Close the window"
msgstr "Das Fenster schließen"

msgctxt "Menü\nDatei"
msgid ""
"Two "
"lines\n"
msgstr ""
"Zwei "
"Zeilen\n"
#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"
# noch unsicher
#, fuzzy, c-format

#| msgid "old"
msgid "Maybe"
msgstr "Vielleicht"

msgid "Later"
msgstr ""

msgid "%d day"
msgid_plural "%d days"
msgstr[0] "%d Tag"
msgstr[1] ""

#~ msgid "Gone"
#~ msgstr "Weg"

#~ msgid "Gone too"
#~ msgstr ""
#~ "Auch weg"
# Schlusswort
"""
)


def test_entries_forms_and_contexts(tmp_path: Path) -> None:
    pairs, report = read_with_origins(tmp_path / "x.po", CATALOG, **TO_GERMAN)
    assert pairs == [
        ("Close the window", "Das Fenster schließen", "8"),
        ("Two lines\n", "Zwei Zeilen\n", "12|Menü Datei"),
        ("%d file", "%d Datei", "19[0]"),
        ("%d files", "%d Dateien", "19[1]"),
        ("%d day", "%d Tag", "33[0]"),
    ]
    assert report.skipped == {"fuzzy": 1, "untranslated": 2, "obsolete": 2}
    assert contexts(tmp_path / "x.po", CATALOG, **TO_GERMAN) == ["", "Menü\nDatei", "", "", ""]
    unfinished, report = read(tmp_path / "x.po", CATALOG, unfinished=True, **TO_GERMAN)
    assert ("Maybe", "Vielleicht") in unfinished
    assert len(unfinished) == 6
    assert report.noted == {"fuzzy, included on request": 1}


def test_either_side_may_be_the_source(tmp_path: Path) -> None:
    content = GERMAN + 'msgid "Yes"\nmsgstr "Ja"\n'
    assert read(tmp_path / "x.po", content)[0] == [("Ja", "Yes")]
    assert read(tmp_path / "x.po", content, **TO_GERMAN)[0] == [("Yes", "Ja")]


@pytest.mark.parametrize(
    ("path", "header", "settings", "language"),
    [
        ("x.po", "de", {}, "de"),
        ("fr.po", "de", {}, "de"),
        ("x.po", "fr", {"catalog_language": "de"}, "de"),
        ("de.po", "", {}, "de"),
        ("de_AT.po", "", {}, "de"),
        ("handbuch.en.po.gz", "", {}, "en"),
        ("locale/de/LC_MESSAGES/app.po", "", {}, "de"),
        ("locale/fr/LC_MESSAGES/app.po", "", {}, "fr"),
        ("po/de/app.po", "", {}, "de"),
        ("fr.po", "", {}, "fr"),
        ("de/fr.po", "", {}, "fr"),
        ("po/app.po", "", {}, None),
    ],
)
def test_the_language_of_a_catalog(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    header: str,
    settings: dict[str, str],
    language: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    content = HEADER.format(header) + 'msgid "message"\nmsgstr "translation"\n'
    if language is None:
        with pytest.raises(InputError, match=r"app\.po: expected a catalog that states its language.*catalog_language"):
            read(Path(path), content, **settings)
        return
    pairs, report = read(Path(path), content, **settings)
    expected = {"de": [("translation", "message")], "en": [("message", "translation")], "fr": []}
    assert pairs == expected[language]
    assert report.skipped == ({"catalog is in fr": 1} if language == "fr" else {})


def test_texts_are_read_as_they_are_with_accelerators_and_line_breaks(tmp_path: Path) -> None:
    content = GERMAN + 'msgid "&File"\nmsgstr "&Datei"\n\nmsgid ""\n"One.\\n"\n"Two.\\n"\nmsgstr "Eins.\\nZwei.\\n"\n'
    pairs, _ = read(tmp_path / "x.po", content)
    assert pairs == [("&Datei", "&File"), ("Eins.\nZwei.\n", "One.\nTwo.\n")]


def test_escapes_line_separators_and_carriage_returns(tmp_path: Path) -> None:
    content = GERMAN + 'msgid "a\\t\\"b\\" \\\\n"\nmsgstr "eins\u2028zwei\x85drei\x0cvier"\n'
    pairs, _ = read(tmp_path / "x.po", content.replace("\n", "\r\n"), **TO_GERMAN)
    assert pairs == [('a\t"b" \\n', "eins\u2028zwei\x85drei\x0cvier")]


def test_the_charset_of_the_header_counts(tmp_path: Path) -> None:
    content = GERMAN.replace("UTF-8", "ISO-8859-1") + 'msgid "cheese"\nmsgstr "Käse"\n'
    assert read(tmp_path / "x.po", content.encode("latin-1"), **TO_GERMAN)[0] == [("cheese", "Käse")]
    template = GERMAN.replace("UTF-8", "CHARSET") + 'msgid "cheese"\nmsgstr "Käse"\n'
    assert read(tmp_path / "x.po", "\ufeff" + template, **TO_GERMAN)[0] == [("cheese", "Käse")]
    with pytest.raises(InputError, match="found UTF-16"):
        read(tmp_path / "x.po", content.encode("utf-16"))


BROKEN = {
    "expected a comment or a quoted string after msgid or msgstr, found 'msgid bare'": 'msgid bare\nmsgstr "nackt"\n',
    "expected a comment or a quoted string after msgid or msgstr, found 'msgstr \"open'": 'msgid "a"\nmsgstr "open\n',
    'expected a comment or a quoted string after msgid or msgstr, found \'msgid "a "b': 'msgid "a "b" c"\nmsgstr "x"\n',
    "expected a msgid before the msgstr, found none": 'msgctxt "x"\nmsgstr "allein"\n',
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_entry_stops_or_costs_only_itself(tmp_path: Path, message: str) -> None:
    good = 'msgid "one"\nmsgstr "eins"\n\n', 'msgid "two"\nmsgstr "zwei"\n'
    content = GERMAN + good[0] + BROKEN[message] + "\n" + good[1]
    with pytest.raises(MalformedMemoryError, match=rf"x\.po, line 9: .*{message}"):
        read(tmp_path / "x.po", content)
    pairs, report = read_with_origins(tmp_path / "x.po", content, on_error="skip", **TO_GERMAN)
    assert pairs == [("one", "eins", "6"), ("two", "zwei", "12")]
    assert report.malformed == 1
    assert message in report.problems[0]


def test_a_wrong_byte_costs_only_its_entry(tmp_path: Path) -> None:
    content = (GERMAN + 'msgid "one"\nmsgstr "').encode() + b'M\xfcll"\n\nmsgid "two"\nmsgstr "zwei"\n'
    with pytest.raises(MalformedMemoryError, match=r"x\.po, line 6: expected text in utf-8, found byte 0xfc in line 7"):
        read(tmp_path / "x.po", content)
    pairs, report = read(tmp_path / "x.po", content, on_error="skip", **TO_GERMAN)
    assert (pairs, report.malformed) == ([("two", "zwei")], 1)


def test_a_second_header_is_counted_and_empty_files_have_no_pairs(tmp_path: Path) -> None:
    content = GERMAN + 'msgid "one"\nmsgstr "eins"\n\n' + GERMAN + 'msgid "two"\nmsgstr "zwei"\n'
    pairs, report = read(tmp_path / "x.po", content, **TO_GERMAN)
    assert (pairs, report.skipped) == ([("one", "eins"), ("two", "zwei")], {"header entry": 1})
    assert read(tmp_path / "x.po", "")[0] == []
    assert read(tmp_path / "x.po", "# nur eine Bemerkung\n")[0] == []


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["", "# note\n", "#. said\n", "#: a.c:1\n", "#, fuzzy\n", "#, c-format\n", '#| msgid "x"\n']
            ),
            st.sampled_from(["", "#~ "]),
            st.text('ab "\\\n\t%ü\u2028', min_size=1, max_size=8),
            st.text('ab "\\\n\t%ü\u2028', max_size=8),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_entries_are_those_that_polib_reads(drawn: list[tuple[str, str, str, str, bool]]) -> None:
    """polib takes the comments above the first entry as the file's, and divides lines at more characters."""
    entries = [GERMAN]
    for comment, mark, message, translation, plural in drawn:
        lines = [f"msgid {quoted(message)}"]
        lines += (
            [f"msgid_plural {quoted(message)}", f"msgstr[0] {quoted(translation)}", f"msgstr[1] {quoted(message)}"]
            if plural
            else [f"msgstr {quoted(translation)}"]
        )
        entries.append(comment + "".join(f"{mark}{line}\n" for line in lines))
    content = "\n".join(entries)
    found = [each for each in po_entries(map(PoLine, content.split("\n"))) if not each.is_header]
    assert not [each.problem for each in found if each.problem]
    expected = polib.pofile(_OnlyLineFeeds(content))
    assert [
        (each.text("msgid"), each.text("msgstr"), each.text("msgstr[0]"), each.is_fuzzy, each.is_obsolete)
        for each in sorted(found, key=lambda each: each.is_obsolete)
    ] == [
        (each.msgid, each.msgstr, each.msgstr_plural.get(0, ""), each.fuzzy, bool(each.obsolete))
        for each in sorted(expected, key=lambda each: bool(each.obsolete))
    ]


class _OnlyLineFeeds(str):
    """A text that only line feeds divide, for polib."""

    __slots__ = ()

    def splitlines(self, keepends: SupportsIndex = False) -> list[str]:
        return self.split("\n")


@pytest.mark.parametrize(
    "entry",
    [
        'msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n',
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\nmsgstr[0] "d"\n',
    ],
)
def test_an_entry_whose_forms_do_not_fit_is_malformed(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "de.po"
    path.write_text(entry, encoding="utf-8")
    report = ReadingReport()
    assert list(read_files([path], ReadingConfig(on_error="skip"), report)) == []
    assert report.malformed == 1
