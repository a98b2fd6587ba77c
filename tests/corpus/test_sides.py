"""Memories whose languages are not those asked for are read with a warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.sides import watched
from knnmt.errors import LanguageWarning
from support.german import german_memory
from support.memories import read

PAIRS = [(pair.source, pair.target) for pair in german_memory(60)]
GERMAN, ENGLISH = ("\n".join(side) + "\n" for side in zip(*PAIRS, strict=True))


def tsv(pairs: list[tuple[str, str]]) -> str:
    return "".join("\t".join(pair) + "\n" for pair in pairs)


def test_swapped_columns_are_said_with_the_options_that_turn_them(tmp_path: Path) -> None:
    swapped = tsv([(english, german) for german, english in PAIRS])
    with pytest.warns(LanguageWarning) as said:
        read(tmp_path / "own.tsv", swapped)
    assert len(said) == 1
    assert str(said[0].message) == (
        f"{tmp_path / 'own.tsv'}: the sources look English and the targets look German, but de to en was requested. "
        "Are its sides swapped? --source-column 2 --target-column 1 swaps them"
    )
    read(tmp_path / "own.tsv", swapped, source_column=2, target_column=1)  # a warning would be an error
    read(tmp_path / "own.tsv", swapped, source_language="en", target_language="de")


def test_swapped_files_and_swapped_tags(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(ENGLISH, encoding="utf-8")
    second.write_text(GERMAN, encoding="utf-8")
    with pytest.warns(LanguageWarning, match="Name its files in the other order"):
        list(read_files([first, second], ReadingConfig(), ReadingReport()))
    list(read_files([second, first], ReadingConfig(), ReadingReport()))
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{german}</seg></tuv><tuv xml:lang="de"><seg>{english}</seg></tuv></tu>'
        for german, english in PAIRS
    )
    with pytest.warns(LanguageWarning, match="The languages that it states may be wrong"):
        read(tmp_path / "own.tmx", f'<tmx version="1.4"><body>{units}</body></tmx>')


def test_another_language_and_no_translation_at_all(tmp_path: Path) -> None:
    french = ["La pompe est mise en marche avec le bouton qui est sur le côté."] * 30
    with pytest.warns(LanguageWarning, match=r"the sources look French, but de to en .* Is it the right file\?"):
        read(tmp_path / "own.tsv", tsv([(each, PAIRS[n][1]) for n, each in enumerate(french)]))
    with pytest.warns(LanguageWarning, match="own.tsv: the targets look German, but"):
        read(tmp_path / "own.tsv", tsv([(german, german) for german, _ in PAIRS]))


def test_every_file_is_looked_at(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.tsv", tmp_path / "wrong.tsv"
    right.write_text(tsv(PAIRS * 10), encoding="utf-8")
    wrong.write_text(tsv([pair[::-1] for pair in PAIRS] * 10), encoding="utf-8")
    with pytest.warns(LanguageWarning) as said:
        assert len(list(read_files([right, wrong, right], ReadingConfig(), ReadingReport()))) == 1800
    assert [str(each.message).split(":")[0] for each in said] == [str(wrong)]


@pytest.mark.parametrize("count", [60, 1000])
def test_text_to_translate_is_looked_at_as_it_passes(count: int) -> None:
    texts = [english for _, english in PAIRS] * 20
    with pytest.warns(LanguageWarning, match="the text looks English, but it is translated from deu_Latn") as said:
        assert list(watched(texts[:count], "deu_Latn")) == texts[:count]
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(watched(texts, "en"))) == len(texts)
        assert len(list(watched(texts, "tlh"))) == len(texts)
