"""Tags are told from words, both halves are paired, and the text is the same when written out again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.protection.marked import Code, Role, written
from knnmt.protection.tags import TAGS, Tags, breaks_line, with_tags


def codes(text: str, mode: Tags = "auto") -> list[tuple[str, Role, int | None]]:
    return [(part.raw, part.role, part.pair) for part in with_tags(text, mode) if isinstance(part, Code)]


@given(st.text(alphabet="ab <>/=\"'!-&lt;gx1", max_size=60), st.sampled_from(TAGS))
def test_written_out_the_text_is_the_same(text: str, mode: Tags) -> None:
    assert written(with_tags(text, mode)) == text


def test_pairs_and_codes_alone() -> None:
    assert codes('Auf <b>OK</b> <a href="x">klicken<br></a>') == [
        ("<b>", Role.OPENING, 1),
        ("</b>", Role.CLOSING, 1),
        ('<a href="x">', Role.OPENING, 2),
        ("<br>", Role.ALONE, None),
        ("</a>", Role.CLOSING, 2),
    ]


def test_what_is_no_element_is_a_code_too() -> None:
    shown = "<!DOCTYPE html><?xml version='1.0'?><!-- a -->"
    assert "".join(raw for raw, _, _ in codes(f"{shown}Titel", "xml")) == shown
    assert codes("<!wichtig> Titel") == []


def test_what_crosses_has_no_pair() -> None:
    assert codes("<b><i>x</b></i>") == [
        ("<b>", Role.OPENING, 1),
        ("<i>", Role.ALONE, None),
        ("</b>", Role.CLOSING, 1),
        ("</i>", Role.ALONE, None),
    ]


def test_inline_elements_of_exchange_formats() -> None:
    assert [
        raw for raw, role, _ in codes('<x id="1"/><ph id="2">&lt;br/&gt;</ph><x id="3"></x>') if role is Role.ALONE
    ] == [
        '<x id="1"/>',
        '<ph id="2">&lt;br/&gt;</ph>',
        '<x id="3"></x>',
    ]
    assert codes('<bpt i="1">{\\b</bpt>OK<ept i="1">}</ept>') == [
        ('<bpt i="1">{\\b</bpt>', Role.OPENING, 1),
        ('<ept i="1">}</ept>', Role.CLOSING, 1),
    ]
    assert [
        pair
        for _, _, pair in codes('<bx id="1" rid="7"/>a<bx id="2" rid="8"/>b<ex id="4" rid="8"/><ex id="3" rid="7"/>')
    ] == [
        2,
        1,
        1,
        2,
    ]


def test_a_placeholder_in_a_code_is_shown() -> None:
    (code,) = (part for part in with_tags('<ph id="1">%s</ph> x') if isinstance(part, Code))
    assert code.shown == "%s"


@pytest.mark.parametrize("text", ["Aufruf: prog <Datei> <Ziel>", "a < b > c", "1<2>1", "<->", "x <= y"])
def test_what_is_no_tag(text: str) -> None:
    assert codes(text) == []


def test_modes() -> None:
    text = '<Datei> <Name>x</Name> <x id="1"> <b>'
    assert [raw for raw, _, _ in codes(text)] == ["<Name>", "</Name>", '<x id="1">', "<b>"]
    assert [raw for raw, _, _ in codes(text, "html")] == ["<Name>", "</Name>", "<b>"]
    assert len(codes(text, "xml")) == 5
    assert codes(text, "none") == []


def test_escaped_tags_are_tags() -> None:
    assert [pair for _, _, pair in codes("&lt;b&gt;OK&lt;/b&gt;")] == [1, 1]


def test_breaks_of_lines() -> None:
    assert all(breaks_line(Code(raw)) for raw in ("<br>", "<p>", "</li>", '<x id="1" ctype="lb"/>'))
    assert not any(breaks_line(Code(raw)) for raw in ("<b>", '<x id="1"/>', "%s"))


def test_elements_that_stay_are_one_code_with_what_they_hold() -> None:
    assert with_tags('a <b translate="no">Name</b> c') == ("a ", Code('<b translate="no">Name</b>'), " c")
    assert with_tags("<y>Name</y> c", "xml", ["y"]) == (Code("<y>Name</y>"), " c")
    begun = with_tags("<y>" * 5_000, "xml", ["y"])  # no end is looked for again where there was none
    assert len(begun) == 5_000


def test_comments_end_where_they_are_closed() -> None:
    assert codes("a <!-- <b> --> b <!-- c <!-- d --> e") == [
        ("<!-- <b> -->", Role.ALONE, None),
        ("<!-- c <!-- d -->", Role.ALONE, None),
    ]
    assert codes("<!--> <b>x</b> <!-- y") == [("<b>", Role.OPENING, 1), ("</b>", Role.CLOSING, 1)]


class Searched(str):
    """A text that counts how often its end is looked for."""

    times = 0

    def find(self, *asked: Any) -> int:
        type(self).times += 1
        return super().find(*asked)

    def index(self, *asked: Any) -> int:
        type(self).times += 1
        return super().index(*asked)

    def rfind(self, *asked: Any) -> int:
        type(self).times += 1
        return super().rfind(*asked)


def test_an_end_that_is_missing_is_looked_for_once() -> None:
    """Else a text of nothing but beginnings would take a time that is the square of its length."""
    assert with_tags(text := Searched("<!--" * 5_000)) == (text,)
    assert Searched.times == 1


def test_tags_that_close_nothing_leave_those_that_are_open() -> None:
    assert codes("<i><b>x</u></b>y</u></i>", "xml")[-1] == ("</i>", Role.CLOSING, 2)


@pytest.mark.parametrize("text", ["Titel: %<title>s", "%<code>-5d Zeichen", "%<b>.2f"])
def test_named_arguments_of_ruby_are_no_tags(text: str) -> None:
    assert with_tags(text) == (text,)
