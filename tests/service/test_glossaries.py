"""Glossaries last, belong to a key, and files that are none are passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.service.access import Caller, Key
from knnmt.service.glossaries import Dictionary, Glossaries, require_terms
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


def test_none_are_kept_without_a_directory() -> None:
    assert not Glossaries(None).can_keep
    with pytest.raises(Problem, match="data directory"):
        Glossaries(None).make("terms", TERMS, ANYBODY)


@pytest.mark.parametrize("wrong", [[], [("a", "")], [("a", "b"), ("a", "c")], [("a\n", "b")], [("a" * 1025, "b")]])
def test_terms_that_are_none(wrong: list[tuple[str, str]]) -> None:
    with pytest.raises(Problem):
        require_terms(wrong)
