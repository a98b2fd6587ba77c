"""Which texts count as the same, as forms of one another, and the form that a translation takes over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.sameness import final_mark, in_the_form_of, loose, plain, without_final_mark


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


@pytest.mark.parametrize(
    ("text", "stored", "translation", "expected"),
    [
        ("Gesperrt.", "Gesperrt", "Locked", "Locked."),
        ("Gesperrt", "Gesperrt.", "Locked.", "Locked"),
        ("Gesperrt!", "Gesperrt.", "Locked.", "Locked!"),
        ("Gesperrt.", "Gesperrt.", "Locked", "Locked"),  # the memory has left the mark out, and so it stays
        ("Speichern unter", "Speichern unter …", "Save As…", "Save As"),
        ("Speichern unter …", "Speichern unter", "Save As", "Save As…"),
        ("gesperrt", "Gesperrt", "Locked", "locked"),
        ("Gesperrt", "gesperrt", "locked", "Locked"),
        ("GESPERRT", "Gesperrt", "Locked", "LOCKED"),
        ("ich bin da", "Ich bin da", "I am here", "I am here"),
        ("dokument", "Dokument", "PDF file", "PDF file"),
        ("  Gesperrt ", "Gesperrt", "Locked", "Locked"),
        ("gesperrt", "Gesperrt", "", ""),
    ],
)
def test_a_translation_takes_over_the_form(text: str, stored: str, translation: str, expected: str) -> None:
    assert in_the_form_of(text, stored, translation) == expected


@given(st.text(), st.text())
def test_the_same_text_changes_nothing(text: str, translation: str) -> None:
    assert in_the_form_of(text, text, translation) == translation
    assert plain(text) == plain(plain(text))
