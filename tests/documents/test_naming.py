"""The names of translated documents."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from knnmt.documents.naming import download_name, translated_path


@pytest.mark.parametrize(
    ("path", "becomes"),
    [
        ("film.de.srt", "film.en.srt"),
        ("film.de-AT.srt", "film.en.srt"),
        ("sub/de/app.json", "sub/en/app.json"),
        ("de.json", "en.json"),
        ("values-de/strings.xml", "values-en/strings.xml"),
        ("values-de-rAT/strings.xml", "values-en/strings.xml"),
        ("intl_de.arb", "intl_en.arb"),
        ("texts_de_AT.properties", "texts_en.properties"),
        ("de_DE/texts.properties", "en/texts.properties"),
        ("guide-de-voyage.md", "guide-de-voyage.md"),
        ("film.en.srt", "film.en.srt"),
        ("modelle.md", "modelle.md"),
        ("strings.xml", "strings.xml"),
    ],
)
def test_the_language_in_a_name_becomes_that_of_the_target(path: str, becomes: str) -> None:
    assert translated_path(PurePath(path), "de", "en") == PurePath(becomes)
    assert translated_path(PurePath(path), None, "en") == translated_path(PurePath(path), "de", None) == PurePath(path)


def test_a_region_is_written_as_the_original_writes_it() -> None:
    names = ("film.de-DE.srt", "texts_de_DE.properties", "values-de-rDE/strings.xml", "film.de.srt")
    assert [str(translated_path(PurePath(name), "de", "pt-br")) for name in names] == [
        "film.pt-BR.srt",
        "texts_pt_BR.properties",
        "values-pt-rBR/strings.xml",
        "film.pt-BR.srt",
    ]


@pytest.mark.parametrize(
    ("name", "bilingual", "becomes"),
    [
        ("film.de.srt", False, "film.en.srt"),
        ("film.srt", False, "film.en.srt"),
        ("app.po", True, "app.en.po"),
        ("app.de.xlf", True, "app.de.en.xlf"),
        ("app_en.xlf", True, "app_en.xlf"),
        ("document", False, "document.en"),
    ],
)
def test_a_download_says_its_language(name: str, bilingual: bool, becomes: str) -> None:
    assert download_name(name, "de", "en", bilingual) == becomes
    assert download_name(name, "de", None, bilingual) == name
