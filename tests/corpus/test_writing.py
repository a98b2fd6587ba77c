from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.writing import write_tmx, write_tsv
from knnmt.errors import StorageError

AWKWARD = "äß&<>\"'\t\r\n\u2028\x00\x0b\x85\ufeff\ufffe\ud800😀 "
SIDE = st.text(AWKWARD, min_size=1, max_size=8) | st.text(st.characters(), min_size=1, max_size=20)
PAIRS = st.lists(st.builds(SegmentPair, SIDE, SIDE, SIDE, st.just("") | SIDE), max_size=8)
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def replace_all(pairs: list[SegmentPair], *replacements: tuple[str, str]) -> list[SegmentPair]:
    """The pairs as a format can hold them."""

    def replaced(text: str) -> str:
        for pattern, by in replacements:
            text = re.sub(pattern, by, text)
        return text

    return [SegmentPair(*map(replaced, (pair.source, pair.target, pair.origin, pair.context))) for pair in pairs]


def check_round_trip(path: Path, written: list[SegmentPair], changed: int, original: list[SegmentPair]) -> None:
    assert changed == sum(left != right for left, right in zip(written, original, strict=True))
    report = ReadingReport()
    config = ReadingConfig(origin_column=3)
    blank = [pair for pair in written if not (pair.source.strip() and pair.target.strip())]
    assert list(read_files([path], config, report)) == [pair for pair in written if pair not in blank]
    assert report.skipped.total() == len(blank)
    assert not report.malformed


@SHARED_FOLDER
@given(pairs=PAIRS)
def test_tsv_comes_back(tmp_path: Path, pairs: list[SegmentPair]) -> None:
    path = tmp_path / "a.tsv"
    changed = write_tsv(path, iter(pairs))
    pairs = [replace(pair, context="") for pair in pairs]  # there is no column for it
    written = replace_all(pairs, (r"[\t\n\r\ufeff]", " "), (r"[\ud800-\udfff]", "\ufffd"))
    check_round_trip(path, written, changed, pairs)


@SHARED_FOLDER
@given(pairs=PAIRS)
def test_tmx_comes_back(tmp_path: Path, pairs: list[SegmentPair]) -> None:
    path = tmp_path / "a.tmx"
    changed = write_tmx(path, iter(pairs), "de-DE", "en")
    written = replace_all(pairs, ("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd"))
    check_round_trip(path, written, changed, pairs)


def _tmx(path: Path, pairs: Iterator[SegmentPair] | list[SegmentPair]) -> int:
    return write_tmx(path, pairs, "de", "en")


WRITE: dict[str, Callable[[Path, Iterator[SegmentPair]], int]] = {"tsv": write_tsv, "tmx": _tmx}


def test_tsv_has_three_columns(tmp_path: Path) -> None:
    pairs = [SegmentPair("eins", "one", "x#1"), SegmentPair("zwei\tdrei", "two\r\nthree", "x#2")]
    assert write_tsv(tmp_path / "a.tsv", pairs) == 1
    assert (tmp_path / "a.tsv").read_bytes() == b"eins\tone\tx#1\nzwei drei\ttwo  three\tx#2\n"


def test_tmx_has_languages_and_origin(tmp_path: Path) -> None:
    assert write_tmx(tmp_path / "a.tmx", [SegmentPair("a < b\x00", "a & b", 'x"y#1')], "de", "en-GB") == 1
    content = (tmp_path / "a.tmx").read_text(encoding="utf-8")
    assert 'srclang="de"' in content
    assert '<prop type="x-origin">x&quot;y#1</prop>' in content
    assert '<tuv xml:lang="de"><seg>a &lt; b\ufffd</seg></tuv>' in content
    assert '<tuv xml:lang="en-GB"><seg>a &amp; b</seg></tuv>' in content


@pytest.mark.parametrize("kind", WRITE)
def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_text("alt")

    def breaking() -> Iterator[SegmentPair]:
        yield SegmentPair("eins", "one", "x#1")
        assert path.read_text() == "alt"
        raise KeyError("Strom weg")

    with pytest.raises(KeyError, match="Strom weg"):
        WRITE[kind](path, breaking())
    assert path.read_text() == "alt"
    assert list(tmp_path.iterdir()) == [path]
    WRITE[kind](path, iter([SegmentPair("zwei", "two", "x#2")]))
    assert "zwei" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", WRITE)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StorageError, match=rf"fehlt/a\.{kind}: cannot be written: No such file"):
        WRITE[kind](tmp_path / "fehlt" / f"a.{kind}", iter([]))


@pytest.mark.parametrize("kind", WRITE)
def test_what_a_link_leads_to_is_written_and_the_link_stays(tmp_path: Path, kind: str) -> None:
    pairs = [SegmentPair("eins", "one", "x#1"), SegmentPair("zwei", "two", "x#2")]
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / f"a.{kind}", tmp_path / f"link.{kind}"
    link.symlink_to(target)
    for count in (1, 2):  # first it leads nowhere
        WRITE[kind](link, iter(pairs[:count]))
        assert link.is_symlink()
        assert len(list(read_files([target], ReadingConfig(), ReadingReport()))) == count
    assert [path.name for path in (tmp_path / "there").iterdir()] == [target.name]
    with pytest.raises(StorageError, match="there: expected the name of a file, found a directory"):
        WRITE[kind](tmp_path / "there", iter(pairs))
