from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError, MalformedMemoryError


def pairs_of(files: dict[Path, str | bytes], config: ReadingConfig, report: ReadingReport) -> list[SegmentPair]:
    for path, content in files.items():
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_files(list(files), config, report))


@pytest.mark.parametrize(
    ("first", "second", "swapped"),
    [
        ("links", "rechts", False),
        ("korpus.de", "korpus.en", False),
        ("korpus.en", "korpus.de", True),
        ("korpus.en-GB.txt", "korpus.de_AT.txt", True),
        ("korpus.en", "anderes", True),
        ("anderes", "korpus.de", True),
        ("korpus.de", "anderes", False),
    ],
)
def test_names_decide_which_file_is_the_source(tmp_path: Path, first: str, second: str, swapped: bool) -> None:
    report = ReadingReport()
    paths = tmp_path / first, tmp_path / second
    pairs = pairs_of({paths[0]: "oben\nunten\n", paths[1]: "top\nbottom"}, ReadingConfig(), report)
    sides = [("top", "oben"), ("bottom", "unten")] if swapped else [("oben", "top"), ("unten", "bottom")]
    name = paths[1] if swapped else paths[0]
    assert pairs == [SegmentPair(*side, f"{name}#{number}") for number, side in enumerate(sides, start=1)]


def test_two_files_of_one_language_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a de and a en file, but both names end in de"):
        pairs_of({tmp_path / "a.de": "x\n", tmp_path / "b.de": "y\n"}, ReadingConfig(), ReadingReport())


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize(("left", "right", "longer"), [("a\nb\nc\n", "a\nb\n", "x.de"), ("a\nb", "a\nb\nc", "x.en")])
def test_unequal_length_always_stops(tmp_path: Path, left: str, right: str, longer: str, on_error: str) -> None:
    shorter = {"x.de": "x.en", "x.en": "x.de"}[longer]
    config = ReadingConfig(on_error="skip" if on_error == "skip" else "stop")
    with pytest.raises(MalformedMemoryError, match=rf"{longer}, line 3: has no partner, .*{shorter} ends after line 2"):
        pairs_of({tmp_path / "x.de": left, tmp_path / "x.en": right}, config, ReadingReport())


def test_blank_and_broken_lines_keep_their_places(tmp_path: Path) -> None:
    files: dict[Path, str | bytes] = {
        tmp_path / "x.de": b"eins\n\nM\xfcll\nvier\n",
        tmp_path / "x.en": "one\ntwo\nwaste\nfour\n",
    }
    with pytest.raises(MalformedMemoryError, match=r"x\.de, line 3: expected UTF-8, found byte 0xfc"):
        pairs_of(files, ReadingConfig(), ReadingReport())
    report = ReadingReport()
    pairs = pairs_of(files, ReadingConfig(on_error="skip"), report)
    assert [(pair.source, pair.target, pair.origin) for pair in pairs] == [
        ("eins", "one", f"{tmp_path / 'x.de'}#1"),
        ("vier", "four", f"{tmp_path / 'x.de'}#4"),
    ]
    assert (report.malformed, report.skipped) == (1, {"empty source or target": 1})


def test_a_text_file_needs_a_partner(tmp_path: Path) -> None:
    config = ReadingConfig()
    with pytest.raises(InputError, match=r"allein\.txt: is a text file without a partner\. Plain text needs two files"):
        pairs_of({tmp_path / "allein.txt": "eins\n"}, config, ReadingReport())
    files: dict[Path, str | bytes] = {tmp_path / "allein.txt": "eins\n", tmp_path / "b.tsv": "a\tb\n"}
    with pytest.raises(
        InputError, match=r"allein\.txt: is a text file without a partner; the next file .*b\.tsv is tsv"
    ):
        pairs_of(files, config, ReadingReport())
    with pytest.raises(InputError, match="found UTF-16"):
        pairs_of({tmp_path / "a.txt": "eins".encode("utf-16"), tmp_path / "b.txt": "x"}, config, ReadingReport())
