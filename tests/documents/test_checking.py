"""What a check says of translations."""

from __future__ import annotations

import pytest

from knnmt import SegmentPair
from knnmt.corpus.glossary import Glossary
from knnmt.documents.check_page import check_page, summary
from knnmt.documents.checking import KINDS, check_document, check_units
from knnmt.documents.document import State, Unit
from knnmt.documents.xliff import open_xliff
from knnmt.protection.marked import Code, Marked, Role

OPEN, CLOSE, OTHER = Code("<g>", Role.OPENING, 1), Code("</g>", Role.CLOSING, 1), Code("<x/>")


def found(source: Marked | str, target: Marked | str, **told: object) -> list[tuple[str, str]]:
    sides = [(side,) if isinstance(side, str) else side for side in (source, target)]
    report = check_units("x", [Unit("u", sides[0], sides[1] or None, State.TRANSLATED)], **told)  # type: ignore[arg-type]
    assert {problem.kind for problem in report.problems} <= set(KINDS)
    return [(problem.kind, problem.message) for problem in report.problems]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Die Datei %s hat 1.500 Bytes.", "The file %s has 1,500 bytes."),
        ("Ein <b>fettes</b> Wort", "A <b>bold</b> word"),
        (("Ein ", OPEN, "Wort", CLOSE, OTHER), ("A ", OTHER, OPEN, "word", CLOSE)),
        ("OK", "OK"),
        ("LibreOffice Writer Base", "LibreOffice Writer Base"),
        ("Ja", "Yes, certainly"),
    ],
)
def test_a_sound_translation_gives_no_finding(source: Marked | str, target: Marked | str) -> None:
    assert found(source, target) == []


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("Datei öffnen", "open file", "begins with 'open file', the source with 'Datei öffnen'"),
        ("Speichern…", "Save", "ends with 'Save', the source with 'Speichern…'"),
        (
            "Die Datei fehlt.",
            "The file is missing",
            "ends with 'The file is missing', the source with 'Die Datei fehlt.'",
        ),
        (" von", "of", "lacks ' ' where it begins"),
        ("Zeile", "Line\n", "ends with '\\n', the source with ''"),
        ("Eins\nzwei", "One two", "has 0 line ends, the source 1"),
        ("Eins\tzwei", "One two", "has 0 tabs, the source 1"),
        ("Eine Datei", "A  file", "has two spaces in a row"),
        ("Eine Datei", "A a file", ""),
        ("In der Datei da", "In the the file", "repeats 'the'"),
        ("Alle (drei) da", "All (three here", "has a ( without its other half"),
        ('Die "Datei"', 'The "file', 'has a " without its other half'),
        ("&Datei", "File", "lacks the accelerator & of the source"),
    ],
)
def test_the_form_of_a_translation_follows_its_source(source: str, target: str, says: str) -> None:
    assert found(source, target, language="en") == [("form", says)] * bool(says)


def test_a_form_that_the_language_has_is_no_finding() -> None:
    for source, target in [
        ("items", "Elemente"),
        ("Delete %s", "%s löschen"),
        ("Wait...", "Warten ..."),
        ("those who the those", "die, die da"),
        ("Error(s)", "Fehler"),
    ]:
        assert found(source, target, language="de") == []


def test_what_the_translation_alone_has_is_a_finding() -> None:
    assert found("Datei da", "[File] there") == [
        ("placeholder", "[ not in the source, once in the translation"),
        ("placeholder", "] not in the source, once in the translation"),
    ]
    assert found("<a href='x'>da</a>", '<a href="x">there</a>') == []


def image(raw: str) -> Marked:
    return ("Ein ", Code(raw), " hier")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Ein <img src='a' alt='Bild'/> hier", "An <img src='a' alt='image'/> here"),
        ('<a title="Hilfe" href="x">Da</a>', '<a title="Help me" href="x">There</a>'),
        (image('<img alt="Bild">'), image('<img alt="Image">')),
        (image('<x id="1" equiv-text="&lt;img alt=&quot;Bild&quot;/>"/>'), image('<x id="1" equiv-text="&lt;img/>"/>')),
        (
            image('<ph id="1">&lt;img alt="<sub>Bild</sub>"/></ph>'),
            image('<ph id="1">&lt;img alt="<sub>Image</sub>"/></ph>'),
        ),
        (image('![Bild](a.png "Titel")'), image('![Image](a.png "Title")')),
    ],
)
def test_a_tag_with_a_translated_text_is_the_same(source: Marked | str, target: Marked | str) -> None:
    assert found(source, target) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ('<img alt="Bild" src="a"/> da', '<img alt="Image" src="b"/> da'),
        ('<img alt="Bild"/> da', "<img/> da"),
        ('<img data-title="Bild"/> da', '<img data-title="Image"/> da'),
        (image("![Bild](a.png)"), image("![Image](b.png)")),
    ],
)
def test_a_tag_that_differs_in_more_than_its_text_is_not(source: Marked | str, target: Marked | str) -> None:
    assert {kind for kind, _ in found(source, target)} == {"tag"}


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("Datei %s da", "File here", ("placeholder", "%s once in the source, not in the translation")),
        ("Datei {0} da", "File {0} {0} here", ("placeholder", "{0} once in the source, twice in the translation")),
        ("Datei da", "File %d here", ("placeholder", "%d not in the source, once in the translation")),
        ("Es sind 15 Dateien", "There are 51 files", ("number", "15 once in the source, not in the translation")),
        ("Ein <b>Wort</b>", "A <b>word", ("tag", "</b> once in the source, not in the translation")),
        (("Ein ", OPEN, "Wort", CLOSE), ("A word",), ("tag", "<g> once in the source, not in the translation")),
        (("Ein ", OPEN, "Wort", CLOSE), ("A ", CLOSE, "word", OPEN), ("tag", "tags are not nested correctly")),
        ("Die Datei wurde gelöscht.", "Gone", ("length", "4 characters for 25")),
        ("Abbrechen", "", ("untranslated", "has no translation")),
        ("Das ist ein ganzer Satz.", "Das ist ein ganzer Satz.", ("copy", "the translation equals the source")),
    ],
)
def test_what_is_wrong_is_said(source: Marked | str, target: Marked | str, says: tuple[str, str]) -> None:
    kind, message = says
    assert (kind, message) in [(each, text[: len(message)]) for each, text in found(source, target)]


def test_terms_are_those_of_the_glossary() -> None:
    glossary = Glossary([("Datei", "file")], "de", "en")
    assert found("Zwei Dateien", "Two files", glossary=glossary) == []
    assert found("Zwei Dateien", "Two documents", glossary=glossary) == [
        ("term", "the glossary has 'file' for 'Datei'; the translation does not")
    ]


def test_names_are_spelt_as_in_the_memory() -> None:
    memory = [
        SegmentPair("Der Zug nach Leipzig", "The train to Leipzig", "m"),
        SegmentPair("Die Datei ist weg", "The file is gone", "m"),
    ]
    assert found("Nach Leipzig mit der Datei", "To Leipzig with the file", memory=memory) == []
    assert found("Nach Leipzig mit der Datei", "To Leipsig with the file", memory=memory) == [
        ("name", "'Leipzig' stays unchanged in the memory; the translation has 'Leipsig'")
    ]


def test_a_document_is_counted_and_shown_as_a_page() -> None:
    units = (
        '<trans-unit id="a"><source>Datei %s</source><target>File</target></trans-unit>'
        '<trans-unit id="b"><source>Ja &lt;script></source></trans-unit>'
        '<trans-unit id="c"><source>Nein</source><target state="needs-review-translation">No</target></trans-unit>'
        '<trans-unit id="d" translate="no"><source>Nie</source></trans-unit>'
    )
    document = open_xliff(f'<xliff version="1.2"><file><body>{units}</body></file></xliff>'.encode(), "a.xlf")
    report = check_document(document, "a.xlf")
    assert [(problem.unit, problem.kind) for problem in report.problems] == [
        ("a", "placeholder"),
        ("b", "untranslated"),
    ]
    assert summary(report) == "1 translated, 1 fuzzy, 1 untranslated; untranslated 1, placeholder 1"
    page = check_page([report], "p {}")
    assert page.startswith("<!doctype html>")
    assert "<title>Findings</title>" in page
    assert "2 findings in 1 document" in page
    assert "Ja &lt;script&gt;" in page
    assert "<script>" not in page


def test_a_number_of_thousands_of_digits_is_named() -> None:
    """Python refuses to read it as a number."""
    assert [kind for kind, _ in found("Das Haus am See ist alt.", f"The house at the lake is {'7' * 5000}.")] == [
        "length",
        "number",
    ]
