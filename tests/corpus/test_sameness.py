"""Which texts count as the same, as forms of one another, and the form that a translation takes over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.sameness import final_mark, loose, plain, without_final_mark


@pytest.mark.parametrize(
    ("text", "mark", "rest"),
    [
        ("Gesperrt", "", "Gesperrt"),
        ("Gesperrt.", ".", "Gesperrt"),
        ("Speichern unter …", "…", "Speichern unter"),
        ("Wirklich?! ", "?!", "Wirklich"),
        ("Version 1.2", "", "Version 1.2"),
        ("...", "...", ""),
    ],
)
def test_final_marks(text: str, mark: str, rest: str) -> None:
    assert final_mark(text) == mark
    assert without_final_mark(text) == rest


def test_forms_of_one_text_are_loosely_the_same() -> None:
    forms = ["Konto gesperrt", "konto gesperrt.", "  Konto   gesperrt!", "KONTO GESPERRT", "Konto\u00a0gesperrt …"]
    assert {loose(each) for each in forms} == {"konto gesperrt"}
    assert loose("Konto entsperrt") != loose("Konto gesperrt")
    assert loose("...") == ""


@given(st.text())
def test_a_plain_text_is_plain(text: str) -> None:
    assert plain(text) == plain(plain(text))
