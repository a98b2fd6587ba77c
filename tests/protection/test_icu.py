"""ICU messages are parsed into branches, and written out as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.protection.icu import Choice, Message, parsed, written_message
from knnmt.protection.layout import layout_of
from knnmt.protection.marked import written
from knnmt.protection.tags import with_tags

PLURAL = "{count, plural, =0 {Keine Datei} one {# Datei} other {# Dateien}}"
NESTED = "{who, select, male {Er hat {n, plural, one {# Kind} other {# Kinder}}} other {Sie hat '{'viele'}'}}"


def simple(depth: int) -> st.SearchStrategy[str]:
    """Messages, made as their grammar says."""
    text = st.sampled_from(["", "Datei ", "{0} ", "'{'x'}' ", "ist es ", "{n, number} "])
    if depth == 0:
        return text
    branch = simple(depth - 1)
    choice = st.builds(
        lambda kind, one, other: f"{{n, {kind}, one {{{one}}} other {{{other}}}}}",
        st.sampled_from(["plural", "select", "selectordinal"]),
        branch,
        branch,
    )
    return st.lists(st.one_of(text, choice), max_size=3).map("".join)


@given(simple(2))
def test_written_out_a_message_is_the_same(text: str) -> None:
    message = parsed(text)
    assert (message is not None) == ("one {" in text)
    assert message is None or written_message(message) == text
    layout = layout_of((text,))
    assert written(layout.filled(layout.leaves)) == text


@pytest.mark.parametrize(
    "text", ["{0} Dateien", "{n, plural}", "{n, plural, one {x}", "{n, plural, }", "{n, plural, one {x}} }"]
)
def test_what_is_no_message_with_branches(text: str) -> None:
    assert parsed(text) is None


def test_leaves_are_the_branches_and_what_stands_around_them() -> None:
    layout = layout_of(with_tags(f"{PLURAL} <b>gelöscht</b>"))
    assert [written(leaf) for leaf in layout.leaves] == [
        "Keine Datei",
        "# Datei",
        "# Dateien",
        "{count, 0} <b>gelöscht</b>",
    ]
    assert written(layout.filled([("no file",), ("a",), ("b",), layout.leaves[3]])) == (
        "{count, plural, =0 {no file} one {a} other {b}} <b>gelöscht</b>"
    )
    message = parsed(NESTED)
    assert message is not None
    assert depth(message) == 2
    assert [written(leaf) for leaf in layout_of((NESTED,)).leaves] == [
        "# Kind",
        "# Kinder",
        "Er hat {n, 0}",
        "Sie hat '{'viele'}'",
    ]


def depth(message: Message) -> int:
    choices = [part for part in message if isinstance(part, Choice)]
    return max((1 + max(depth(branch.message) for branch in choice.branches) for choice in choices), default=0)


def test_tabs_breaks_and_placeholders_alone_are_no_leaves() -> None:
    layout = layout_of(with_tags("%s: {0}\tName\t<p>Ein Satz.<br/>Noch einer.</p>\t12"))
    assert [written(leaf) for leaf in layout.leaves] == ["Name", "Ein Satz.", "Noch einer.", "12"]
    assert written(layout.filled([("a",), ("b",), ("c",), ("d",)])) == "%s: {0}\ta\t<p>b<br/>c</p>\td"


def test_texts_that_cannot_be_parsed_with_stand_ins_for_their_codes() -> None:
    many = with_tags("<b>" * 70_000 + PLURAL, "xml")
    assert written(layout_of(many).filled(layout_of(many).leaves)) == "<b>" * 70_000 + PLURAL
    private = with_tags(f"<b>{PLURAL}</b> \U00100000", "xml")
    assert written(layout_of(private).filled(layout_of(private).leaves)) == f"<b>{PLURAL}</b> \U00100000"
