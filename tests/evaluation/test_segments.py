from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.options import ReadingConfig
from knnmt.errors import MalformedMemoryError, SettingError
from knnmt.evaluation.segments import read_pairs, read_text

CONFIG = ReadingConfig("de", "en")


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_lines_of_two_files_belong_together_and_blank_ones_are_counted(tmp_path: Path) -> None:
    """The option says which file is the source: a name that ends in the other language does not turn them round."""
    source, reference = (
        write(tmp_path / "a.en", ["eins", "", "drei"]),
        write(tmp_path / "a.de", ["one", "two", "three"]),
    )
    text = read_text(source, reference, CONFIG)
    assert (text.sources, text.references) == (["eins", "drei"], ["one", "three"])
    assert text.left_out == {"empty source or target": 1}
    assert text.name == "a.en and a.de"


def test_files_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedMemoryError, match="has no partner"):
        read_text(write(tmp_path / "a", ["eins", "zwei"]), write(tmp_path / "b", ["one"]), CONFIG)


def test_the_halves_of_a_memory_make_the_whole(tmp_path: Path) -> None:
    memory = write(tmp_path / "a.tsv", [f"Satz {n}\tsentence {n}" for n in range(60)])
    whole, tune, report = (read_pairs(memory, CONFIG, half) for half in ("all", "tune", "report"))
    assert sorted([*tune.sources, *report.sources]) == sorted(whole.sources)
    assert min(len(tune.segments), len(report.segments)) > 15
    with pytest.raises(SettingError, match="half must be one of all, report, tune, got 'both'"):
        read_pairs(memory, CONFIG, "both")  # type: ignore[arg-type]


def test_segments_are_left_out_by_number(tmp_path: Path) -> None:
    text = read_pairs(write(tmp_path / "a.tsv", ["eins\tone", "zwei\ttwo", "drei\tthree"]), CONFIG)
    less = text.without([0, 2], "known")
    assert less.sources == ["zwei"]
    assert less.left_out == {"known": 2}
    assert text.left_out == {}
    with pytest.raises(SettingError, match="every segment would be left out"):
        text.without([0, 1, 2], "known")


def test_a_text_without_segments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has no segment"):
        read_pairs(write(tmp_path / "a.tsv", ["\tone"]), CONFIG)
