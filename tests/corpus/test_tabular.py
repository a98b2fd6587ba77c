from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError, MalformedMemoryError
from support.memories import read, read_with_origins


def test_tsv_is_split_at_tabs_and_nothing_else(tmp_path: Path) -> None:
    content = '\ufeffGuten "Tag"\tGood "day"\r\n"Offen\tOpen\tRest\n\n\tempty\nleer\t \nletzte\tlast'
    pairs, report = read_with_origins(tmp_path / "a.tsv", content)
    assert pairs == [('Guten "Tag"', 'Good "day"', "1"), ('"Offen', "Open", "2"), ("letzte", "last", "6")]
    assert report.skipped == {"empty line": 1, "empty source or target": 2}


def test_columns_header_and_origin_are_chosen(tmp_path: Path) -> None:
    content = "Herkunft\tZiel\tQuelle\nbrief\tHello\tHallo\n\tYes\tJa\n"
    pairs, report = read_with_origins(
        tmp_path / "a.tsv", content, source_column=3, target_column=2, origin_column=1, header=True
    )
    assert pairs == [("Hallo", "Hello", "brief"), ("Ja", "Yes", "3")]
    assert report.skipped == {"header line": 1}


def test_a_line_with_too_few_columns_stops_or_is_counted(tmp_path: Path) -> None:
    content = "eins\tone\nallein\ndrei\tthree\n"
    with pytest.raises(MalformedMemoryError, match=r"a\.tsv, line 2: expected at least 2 columns, found 1"):
        read(tmp_path / "a.tsv", content)
    pairs, report = read(tmp_path / "a.tsv", content, on_error="skip")
    assert pairs == [("eins", "one"), ("drei", "three")]
    assert report.malformed == 1
    assert report.problems == [f"{tmp_path / 'a.tsv'}, line 2: expected at least 2 columns, found 1"]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_line_in_another_encoding_stops_or_is_counted(tmp_path: Path, name: str) -> None:
    content = b"eins\tone\n" + "für\tfor\n".encode("latin-1") + b"drei\tthree\n"
    with pytest.raises(MalformedMemoryError, match=r"line 2: expected UTF-8, found byte 0xfc at column 2"):
        read(tmp_path / name, content)
    pairs, report = read_with_origins(tmp_path / name, content, on_error="skip")
    assert pairs == [("eins", "one", "1"), ("drei", "three", "3")]
    assert report.malformed == 1
    with pytest.raises(InputError, match="found UTF-16"):
        read(tmp_path / name, "eins\tone\n".encode("utf-16"), on_error="skip")


CSV = '''"Guten Tag, Welt"{0}Good day
"Zwei
Zeilen"{0}"Two
lines"{0}Rest

Er sagte ""nichts""{0}He said nothing
"Das ""Wort"""{0}"The ""word"""
'''


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_with_quotes_line_ends_and_any_delimiter(tmp_path: Path, delimiter: str) -> None:
    pairs, report = read_with_origins(tmp_path / "a.csv", CSV.format(delimiter).replace("\n", "\r\n"))
    assert pairs == [
        ("Guten Tag, Welt", "Good day", "1"),
        ("Zwei\r\nZeilen", "Two\r\nlines", "2"),
        ('Er sagte ""nichts""', "He said nothing", "6"),
        ('Das "Wort"', 'The "word"', "7"),
    ]
    assert report.skipped == {"empty line": 1}


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("Hallo, Welt, da;Hello, world, there", ("Hallo, Welt, da", "Hello, world, there")),
        ("Er kam; sie ging,He came; she left", ("Er kam; sie ging", "He came; she left")),
        ("Eins, zwei; drei\tOne, two; three", ("Eins, zwei; drei", "One, two; three")),
    ],
)
def test_punctuation_is_not_taken_for_the_delimiter(tmp_path: Path, line: str, pair: tuple[str, str]) -> None:
    assert read(tmp_path / "a.csv", line + "\n")[0] == [pair]


def test_a_delimiter_can_be_given(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "a;b|c;d\n", delimiter="|")[0] == [("a;b", "c;d")]


def test_a_quote_that_nobody_closes_is_not_swallowed_in_silence(tmp_path: Path) -> None:
    content = 'eins,one\n"zwei,two\ndrei,three\n'
    with pytest.raises(MalformedMemoryError, match=r"line 2: expected a CSV record, .* ends in line 3"):
        read(tmp_path / "a.csv", content)
    pairs, report = read(tmp_path / "a.csv", content, on_error="skip")
    assert pairs == [("eins", "one")]
    assert report.malformed == 1


def test_reading_goes_on_behind_a_broken_csv_record(tmp_path: Path) -> None:
    content = 'eins,one\n"zwei" und,two\ndrei\nvier,four\n'
    pairs, report = read_with_origins(tmp_path / "a.csv", content, on_error="skip")
    assert pairs == [("eins", "one", "1"), ("vier", "four", "4")]
    assert report.malformed == 2
    assert "line 2: " in report.problems[0]
    assert "line 3: expected at least 2 columns, found 1" in report.problems[1]


def test_empty_files_have_no_pairs(tmp_path: Path) -> None:
    assert read(tmp_path / "a.tsv", "")[0] == []
    assert read(tmp_path / "a.csv", "")[0] == []


def test_carriage_returns_inside_a_line_are_malformed(tmp_path: Path) -> None:
    path = tmp_path / "mac.tsv"
    path.write_bytes(b"a\tb\rc\td\r")
    report = ReadingReport()
    assert list(read_files([path], ReadingConfig(on_error="skip"), report)) == []
    assert report.malformed == 1
