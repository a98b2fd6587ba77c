from __future__ import annotations

from pathlib import PurePath

import pytest

from knnmt.corpus.languages import direction, is_tag, match_rank, matches, name_tags, normalise


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("DE_de", "de-de"), ("de", "de"), (" en-US ", "en-us"), ("de_AT.UTF-8", "de-at"), ("ca@valencia", "ca")],
)
def test_one_spelling(tag: str, expected: str) -> None:
    assert normalise(tag) == expected


def test_tags_are_told_from_other_words() -> None:
    assert all(is_tag(tag) for tag in ("de", "gsw", "zh-Hant-TW", "de_DE", "es-419"))
    assert not any(is_tag(tag) for tag in ("", "d", "Deutsch", "corpus", "de-", "*all*", "1a"))


@pytest.mark.parametrize(
    ("asked", "found", "rank"),
    [
        ("de", "DE", 0),
        ("de-AT", "de_at", 0),
        ("de", "de-CH", 1),
        ("de-CH", "de-CH-1996", 1),
        ("de-AT", "de", 2),
        ("de-AT", "de-CH", None),
        ("de", "den", None),
        ("en", "de", None),
    ],
)
def test_regions_match_the_bare_language_but_not_each_other(asked: str, found: str, rank: int | None) -> None:
    assert match_rank(asked, found) == rank
    assert matches(asked, found) == (rank is not None)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("de-DE", "en-GB", "same"),
        ("en-US", "de", "swapped"),
        ("fr", "en", None),
        ("de", "de", None),
        (None, None, "same"),
        ("de", None, "same"),
        ("en", None, "swapped"),
        (None, "de-AT", "swapped"),
        ("fr", None, None),
    ],
)
def test_direction(source: str | None, target: str | None, expected: str | None) -> None:
    assert direction(("de", "en"), source, target) == expected


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("corpus.de", ["de"]),
        ("corpus.en.txt", ["en"]),
        ("korpus.de.txt.gz", ["de"]),
        ("texte-de.txt.xz", ["de"]),
        ("train.de-AT.zst", ["de-AT", "AT"]),
        ("verzeichnis.de/liste.txt", []),
        ("saetze", []),
    ],
)
def test_tags_at_the_end_of_names(name: str, tags: list[str]) -> None:
    assert name_tags(PurePath(name)) == tags
