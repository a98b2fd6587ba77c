"""Characters that act are written out, and all others stay as they are."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.visible import visible, visible_lines

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=30)
TURNING = {"\u2028", "\u2029", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


def acts(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs"} or character in TURNING


@given(ANY_TEXT)
def test_only_what_acts_is_changed(text: str) -> None:
    shown = visible(text)
    assert not any(map(acts, shown))
    shown.encode("utf-8")
    assert (shown == text) == (not any(map(acts, text)))


@given(ANY_TEXT)
def test_lines_keep_their_ends_and_tabs(text: str) -> None:
    assert not {each for each in visible_lines(text) if acts(each)} - {"\n", "\t"}
    kept = "".join(each for each in text if each in "\n\t")
    assert "".join(each for each in visible_lines(text) if each in "\n\t") == kept


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202eb\u2069", "a\\u202eb\\u2069"),
        ("\udc80", "\\udc80"),
        ("a\tb\nc\r\x7f", "a⇥b↵c␍␡"),
        ("ä שלום \u200f 🙂", "ä שלום \u200f 🙂"),
    ],
)
def test_how_it_is_written(text: str, shown: str) -> None:
    assert visible(text) == shown
