"""Documents as memories."""

from __future__ import annotations

from pathlib import Path

import pytest

import knnmt
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.report import ReadingReport
from knnmt.documents.memory_reading import MemoryReading, files_or_pairs
from knnmt.documents.read_memories import read_memories
from knnmt.errors import InputError
from support.pretending import GOLDEN


def read(*paths: Path, **settings: object) -> tuple[list[tuple[str, str]], ReadingReport]:
    report = ReadingReport()
    pairs = list(read_memories(paths, ReadingConfig(**settings), report))  # type: ignore[arg-type]
    assert report.pairs == len(pairs)
    return [(pair.source, pair.target) for pair in pairs], report


def put(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_a_catalog_of_qt_gives_what_people_translated() -> None:
    pairs, report = read(GOLDEN / "app.ts")
    assert pairs == [("Fertig", "Done")]
    assert dict(report.skipped) == {"untranslated": 5, "fuzzy": 1, "not to be translated": 1}
    assert ("Fast fertig", "Almost") in read(GOLDEN / "app.ts", unfinished=True)[0]
    turned = read(GOLDEN / "app.ts", source_language="en", target_language="de")[0]
    assert turned == [("Done", "Fertig")]
    other, report = read(GOLDEN / "app.ts", source_language="fr", target_language="es")
    assert not other
    assert dict(report.skipped) == {"file is de_DE to en_US": 8}


def test_files_of_one_language_go_two_by_two_by_their_names(tmp_path: Path) -> None:
    german = put(tmp_path / "app.de.json", '{"a": "Eins", "b": {"c": "Zwei {0}"}, "d": "nur hier"}')
    english = put(tmp_path / "app.en.json", '{"b": {"c": "Two {0}"}, "a": "One"}')
    for order in ([german, english], [english, german]):
        pairs, report = read(*order)
        assert pairs == [("Eins", "One"), ("Zwei {0}", "Two {0}")]
        assert dict(report.skipped) == {"no unit of the same name in the other file": 1}
    with pytest.raises(InputError, match=r"two files of json in a row.*found no second one"):
        read(german)
    with pytest.raises(InputError, match="two files of json in a row"):
        read(german, GOLDEN / "messages.properties")
    with pytest.raises(InputError, match="both names say de"):
        read(german, put(tmp_path / "de" / "x.json", "{}"))


def test_pages_go_by_the_order_of_their_texts(tmp_path: Path) -> None:
    german = put(tmp_path / "a.html", "<p>Guten <b>Morgen</b></p><p>Ja</p>")
    english = put(tmp_path / "b.html", "<p>Good <b>morning</b></p><p>Yes</p>")
    assert read(german, english)[0] == [("Guten Morgen", "Good morning"), ("Ja", "Yes")]
    put(english, "<p>Good morning</p>")
    pairs, report = read(german, english)
    assert not pairs
    assert sum(report.skipped.values()) == 1


def test_a_folder_is_read_whole_and_files_find_each_other(tmp_path: Path) -> None:
    put(tmp_path / "memory.tsv", "Tabelle\tTable\n")
    put(tmp_path / "deep" / "app.po", 'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "Katalog"\nmsgstr "Catalog"\n')
    put(tmp_path / "values" / "strings.xml", '<resources><string name="x">Robot</string></resources>')
    put(tmp_path / "values-de-rAT" / "strings.xml", '<resources><string name="x">Roboter</string></resources>')
    put(tmp_path / "i18n" / "de" / "a.properties", "x=Eigenschaft\n")
    put(tmp_path / "i18n" / "en" / "a.properties", "x=Property\n")
    put(tmp_path / "rails" / "de.yml", "de:\n  x: Schiene\n")
    put(tmp_path / "rails" / "en.yml", "en:\n  x: Rail\n")
    put(tmp_path / "text_de.txt", "Zeile\n")
    put(tmp_path / "text_en.txt", "Line\n")
    put(tmp_path / "alone.json", '{"x": "allein"}')
    pairs, _ = read(tmp_path)
    assert sorted(pairs) == [
        ("Eigenschaft", "Property"),
        ("Katalog", "Catalog"),
        ("Roboter", "Robot"),
        ("Schiene", "Rail"),
        ("Tabelle", "Table"),
        ("Zeile", "Line"),
    ]
    reading = MemoryReading([tmp_path], ReadingConfig())
    reading.require_files()
    assert reading.count() == 6
    assert min(pair.origin for pair in reading.pairs()) == f"{tmp_path}/deep/app.po#4"
    assert reading.summary()[0] == "read       6 pairs from 1 folder"
    given = files_or_pairs(str(tmp_path), ReadingConfig())  # as `adapt` and `build` take what they are given
    assert isinstance(given, MemoryReading)
    assert list(given.pairs()) == list(knnmt.read_memories(tmp_path)) == list(reading.pairs())
    with pytest.raises(InputError, match="found none"):
        read(tmp_path / "rails", source_language="fr")
