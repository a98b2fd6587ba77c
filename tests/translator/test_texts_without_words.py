"""Texts with nothing to translate come back as they are, whatever a model would make of them."""

from __future__ import annotations

import pytest

from knnmt import Translator

WITHOUT_WORDS = [
    "\ufeff",
    "\ufeff\ufeff",
    "\u200b",
    "\u200b\u200c\u2060",
    "\u00ad",
    "\u200e",
    "\u180e",  # the model's vocabulary lacks it
    "\U000e0041",
    "\x00",  # the shipped model writes TRUE
    " ",
    " \t ",
    "\u00a0",
    "\u3000",
    "\r\n",
    "...",
    " ?! ",
    "—",
    "* * *",
    "\u2192",
    "😀",
    "\ufe0f",
]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator("de-en", device="cpu", settings="raw")


@pytest.mark.parametrize("settings", [{}, {"split_sentences": True, "protect": True}, {"n_best": 2, "beam": 2}])
def test_they_come_back_as_they_are(translator: Translator, settings: dict[str, int]) -> None:
    found = translator.translate(["Ja.", *WITHOUT_WORDS], **settings)  # type: ignore[call-overload]
    assert [each.text for each in found] == ["Yes.", *WITHOUT_WORDS]
    assert {each.kind for each in found[1:]} == {None}
    assert not any(each.error or each.tokens for each in found[1:])


def test_digits_and_single_letters_are_translated(translator: Translator) -> None:
    found = translator.translate(["42", "\u4eba", "\ufeffJa."])
    assert {each.kind for each in found} == {"model alone"}
