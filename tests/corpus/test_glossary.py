"""Terms are found in the forms of a language, not in other words, and read from tables and TBX."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from knnmt import Glossary, read_glossary
from knnmt.corpus.glossary import Term
from knnmt.errors import InputError, MalformedMemoryError, SettingError

OLD = """<martif type="TBX"><text><body><termEntry>
<langSet xml:lang="de-DE"><tig><term>Datei</term></tig><tig><term>Akte</term></tig></langSet>
<langSet xml:lang="en"><tig><term>document</term></tig><tig><term>file</term></tig></langSet>
</termEntry></body></text></martif>"""
NEW = """<tbx xmlns="urn:iso:std:iso:30042:ed-2"><text><body><conceptEntry id="1">
<langSec xml:lang="de"><termSec><term>Datei</term></termSec></langSec>
<langSec xml:lang="en"><termSec><term>document</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""


def found(glossary: Glossary, text: str) -> list[str]:
    return [text[use.start : use.end] for use in glossary.uses(text)]


def test_forms_of_words() -> None:
    glossary = Glossary(
        [("Datei", "file"), ("rotes Kreuz", "red cross"), ("Haus", "house"), ("CPU", "CPU")], "de", "en"
    )
    assert found(glossary, "Die Dateien, der Datei") == ["Dateien", "Datei"]
    assert found(glossary, "Das Rote Kreuz des roten Kreuzes") == ["Rote Kreuz", "roten Kreuzes"]
    assert found(glossary, "die Häuser, des Hauses") == ["Häuser", "Hauses"]
    assert found(glossary, "cpu CPU CPUs Dateisystem") == ["CPU"]
    assert found(Glossary([("Seite", "page")], "de", "en"), "seit der Seiten") == ["Seiten"]
    assert found(Glossary([("Datei", "file")]), "Datei Dateien") == ["Datei"]  # no endings without a language


def test_the_longest_term_counts() -> None:
    glossary = Glossary([("Datei", "file"), ("Datei öffnen", "open file")], "de", "en")
    assert [use.term.target for use in glossary.uses("Eine Datei öffnen oder Datei")] == ["open file", "file"]


def test_contradictions_are_told() -> None:
    glossary = Glossary([("Zug", "train"), ("Zug", "move"), ("Bus", "bus"), ("Bus", "bus")], "de", "en")
    assert [(use.term.target, use.contradicted) for use in glossary.uses("Zug und Bus")] == [
        ("train", "move"),
        ("bus", None),
    ]


@pytest.mark.parametrize("text", ["The file is here", "Files", "two files.", "file-like"])
def test_a_term_that_is_there(text: str) -> None:
    assert Glossary([], "de", "en").is_met(Term("Datei", "file"), text)


@pytest.mark.parametrize("text", ["The document", "profile", "filesystem", ""])
def test_a_term_that_is_not_there(text: str) -> None:
    assert not Glossary([], "de", "en").is_met(Term("Datei", "file"), text)


def test_what_is_searched_for_counts_as_met() -> None:
    for target in ("file", "files", "boss", "red cross", "CPU", "C++", "§"):
        glossary = Glossary([("x", target)], "de", "en")
        forms = glossary.forms(glossary.terms[0])
        assert target in forms
        assert all(glossary.is_met(glossary.terms[0], form) for form in forms)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.tsv", "Datei\tdocument\n"), ("a.csv", "Datei,document\n"), ("old.tbx", OLD), ("new.tbx", NEW)],
)
def test_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    glossary = read_glossary(tmp_path / name)
    assert glossary.terms[0] == Term("Datei", "document")
    assert (glossary.source_language, glossary.target_language) == ("de", "en")
    if name == "old.tbx":
        assert glossary.terms[1:] == (Term("Akte", "document"),)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.tbx").write_text(OLD.replace('"en"', '"fr"'), encoding="utf-8")
    with pytest.raises(InputError, match="expected terms in de and en, found none"):
        read_glossary(tmp_path / "x.tbx")
    (tmp_path / "y.tbx").write_text(f'<!DOCTYPE martif [<!ENTITY a "b">]>{OLD}', encoding="utf-8")
    with pytest.raises(MalformedMemoryError, match="entity"):
        read_glossary(tmp_path / "y.tbx")
    for name, content in (("half.tbx", "<martif><text>"), ("one.tsv", "Datei\n")):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(MalformedMemoryError, match=r"Repair it: the whole glossary must be valid$"):
            read_glossary(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_glossary(tmp_path / "none.tsv")


def test_terms_that_begin_alike_take_little_time_or_are_refused() -> None:
    """A request could otherwise keep the service busy for minutes."""
    glossary = Glossary([Term("a " * 200 + f"b{number}", "x") for number in range(1_000)], "de", "en")
    began = time.process_time()
    with pytest.raises(SettingError, match="too many terms that begin like parts of a text: 'a a a"):
        list(glossary.uses("a " * 10_000))
    assert time.process_time() - began < 20
    usual = Glossary([Term(f"die Datei {number}", "x") for number in range(1_000)], "de", "en")
    assert len(list(usual.uses("Siehe auch die Datei 7 in dem Ordner von gestern. " * 300))) == 300
