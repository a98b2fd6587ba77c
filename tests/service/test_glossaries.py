"""Glossaries last, belong to a key, and files that are none are passed over."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from knnmt.service.access import Caller, Key
from knnmt.service.glossaries import Dictionary, Glossaries, read_dictionary, require_terms
from knnmt.service.problems import Problem

ANYBODY = Caller(None)
TERMS = (Dictionary("de", "en", (("Datei", "file"),)),)


def test_they_last_and_others_files_are_passed_over(tmp_path: Path) -> None:
    kept = Glossaries(tmp_path)
    first, second = (kept.make(name, TERMS, ANYBODY) for name in ("one", "two"))
    kept.delete(first)
    place = tmp_path / "glossaries"
    (place / "other.json").write_text((place / f"{second.id}.json").read_text())
    for number, wrong in enumerate(("", "[]", "{}", '{"id": "../x"}')):
        (place / f"wrong{number}.json").write_text(wrong)
    again = Glossaries(tmp_path)
    assert again.seen_by(ANYBODY) == [second]
    with pytest.raises(Problem, match="no glossary"):
        again.of(first.id, ANYBODY)


def test_who_sees_them(tmp_path: Path) -> None:
    kept = Glossaries(tmp_path)
    mine, other, boss = (
        Caller(Key(name, "0" * 64, role))  # type: ignore[arg-type]
        for name, role in (("mine", "write"), ("other", "write"), ("boss", "admin"))
    )
    made = kept.make("terms", TERMS, mine)
    assert [kept.seen_by(each) for each in (mine, other, boss)] == [[made], [], [made]]


def test_without_a_directory_they_last_as_long_as_the_service() -> None:
    kept = Glossaries(None)
    made = kept.make("terms", TERMS, ANYBODY)
    assert not kept.can_keep
    assert kept.of(made.id, ANYBODY) is made
    kept.delete(made)
    assert kept.seen_by(ANYBODY) == []


def test_languages_of_other_tags_are_the_same(tmp_path: Path) -> None:
    made = Glossaries(tmp_path).make("terms", TERMS, ANYBODY)
    assert made.of("de-AT", "eng") == TERMS[0]
    assert made.of("en", "de") is None


def test_dictionaries_of_open_languages(tmp_path: Path) -> None:
    both = (*TERMS, Dictionary("en", "de", (("file", "Datei"),)), Dictionary("de", "fr", (("Datei", "fichier"),)))
    made = Glossaries(tmp_path).make("terms", both, ANYBODY)
    assert made.fitting(None, None) == [*both]
    assert made.fitting("de-DE", None) == [both[0], both[2]]
    assert made.fitting(None, "de") == [both[1]]
    assert made.fitting("it", None) == []


def _read(path: Path, content: str | bytes, max_bytes: int = 1 << 20) -> tuple[Dictionary, int]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_dictionary(path, "terms of us", ("de-DE", "en"), max_bytes)


def test_files_become_dictionaries(tmp_path: Path) -> None:
    terms = "Datei\tfile\nOrdner \t folder\nDatei\tdocument\nDatei\tfile\n"
    dictionary = Dictionary("de", "en", (("Datei", "file"), ("Ordner", "folder")))
    assert _read(tmp_path / "a.tsv", terms) == (dictionary, 1)
    assert _read(tmp_path / "a.csv", 'Datei,file\n"Ordner",folder\n') == (dictionary, 0)
    tbx = "<martif><text><body>{}{}</body></text></martif>".format(
        *(
            f'<termEntry id="c{number}"><langSet xml:lang="de"><tig><term>{source}</term></tig></langSet>'
            f'<langSet xml:lang="en-US"><tig><term>{target}</term></tig></langSet></termEntry>'
            for number, (source, target) in enumerate(dictionary.terms)
        )
    )
    assert _read(tmp_path / "a.tbx", tbx) == (dictionary, 0)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.tsv", "Datei\tfile\nOrdner\n", r"terms of us, line 2: expected at least 2 columns, found 1"),
        ("a.csv", "Datei,file\nOrdner,x\x01y\n", r"terms of us#2: contains a control character"),
        ("a.tsv", f"Datei\tfile\n\n{'a' * 1025}\tb\n", r"terms of us#3: a term may have at most 1,024 bytes"),
        ("a.tsv", "\n", r"terms of us: expected terms in de-DE and en, found none"),
        ("a.txt", "Datei\n", r"terms of us: is a text file without a partner"),
        ("a.tsv", "".join(f"a{number}\tb\n" for number in range(20_001)), "at most 20,000 terms: divide it"),
        ("a.tsv", gzip.compress(b"a\tb\n" * 300_000), "terms of us: has more than 1,048,576 bytes once it is unpacked"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name_and_line(
    tmp_path: Path, name: str, content: str | bytes, problem: str
) -> None:
    with pytest.raises(Problem, match=problem) as caught:
        _read(tmp_path / name, content)
    assert str(tmp_path) not in caught.value.message
    assert caught.value.status in (413, 422)


@pytest.mark.parametrize("wrong", [[], [("a", "")], [("a", "b"), ("a", "c")], [("a\n", "b")], [("a" * 1025, "b")]])
def test_terms_that_are_none(wrong: list[tuple[str, str]]) -> None:
    with pytest.raises(Problem):
        require_terms(wrong)
