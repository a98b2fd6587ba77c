"""Where codes and what stands at the edges of a text go, as far as the words alone say it."""

from __future__ import annotations

import numpy as np
import pytest

from knnmt.protection.layout import layout_of
from knnmt.protection.marked import Code, Marked, Role
from knnmt.protection.placing import Placed, arrange
from knnmt.translator.code_placing import anchor_copies, units_of
from knnmt.translator.guarded import Coded
from knnmt.translator.guarding import Guarding

GUARDING = Guarding(protect=True, glossary=None, writes=lambda _: True)


def test_a_pair_around_words_that_stay_goes_around_them_whatever_the_attention_says() -> None:
    source, text = "enthält payload die Daten", "By default, payload contains the data"
    opening, closing = Code("<code>", Role.OPENING, 1), Code("</code>", Role.CLOSING, 1)
    codes = [Coded(8, opening, 0), Coded(15, closing, 0)]
    units = units_of(text, ())
    alignment = np.full((len(units), 4), 0.25, dtype=np.float32)
    alignment[:3] = (0.0, 0.9, 0.1, 0.0)  # the words before it look as if they were in it
    placed = [Placed(opening, 1), Placed(closing, 2)]
    assert arrange(text, units, placed, alignment).marked[0] is opening
    anchor_copies(alignment, (text, units), (source, codes), lambda character: source[:character].count(" "))
    placed = [Placed(opening, 1), Placed(closing, 2)]
    assert arrange(text, units, placed, alignment).marked == (
        "By default, ",
        opening,
        "payload",
        closing,
        " contains the data",
    )


@pytest.mark.parametrize("text", ["payload and payload", "a payloads", "nothing"])
def test_other_words_are_left_to_the_attention(text: str) -> None:
    codes = [Coded(0, Code("<b>", Role.OPENING, 1), 0), Coded(7, Code("</b>", Role.CLOSING, 1), 0)]
    units = units_of(text, ())
    alignment = np.full((len(units), 1), 0.5, dtype=np.float32)
    anchor_copies(alignment, (text, units), ("payload", codes), lambda character: int(character > 0))
    assert (alignment == 0.5).all()


@pytest.mark.parametrize(
    ("text", "words", "before"),
    [("...und dann", "und dann", "..."), ("…und dann", "und dann", "…"), ("... und", "... und", ""), ("…", "…", "")],
)
def test_dots_at_the_beginning_are_not_translated(text: str, words: str, before: str) -> None:
    segments = GUARDING.segments(layout_of((text,)), by_sentence=True, held=None, whole=True)
    assert [each.text for each in segments][:1] in ([words], [])
    if segments and before:
        assert segments[0].guarded is not None
        assert segments[0].guarded.before == (before,)


def test_lines_of_a_subtitle_are_translated_separately() -> None:
    end = Code(r"\N")
    text: Marked = ("- Hast du es?", end, "- Ja", end, "nein")
    layout = layout_of(text)
    assert layout.leaves == [("- Hast du es?",), ("- Ja",), ("nein",)]
    assert layout.filled([("a",), ("b",), ("c",)]) == ("a", end, "b", end, "c")


@pytest.mark.parametrize(
    ("text", "words", "offsets"),
    [
        (("Ein Bild ", Code("<img>"), " hier"), "Ein Bild hier", [(9, "<img>"), (9, " ")]),
        (("Ein  Bild", Code("<img>"), " hier"), "Ein Bild hier", [(3, "  "), (8, "<img>")]),
        (
            ("Ein ", Code("<img>"), " ", Code("<b>", Role.OPENING, 1), "Bild", Code("</b>", Role.CLOSING, 1), " da"),
            "Ein Bild da",
            [(4, "<img>"), (4, " "), (4, "<b>"), (8, "</b>")],
        ),
    ],
)
def test_a_code_between_two_spaces_keeps_both(text: Marked, words: str, offsets: list[tuple[int, str]]) -> None:
    [segment] = GUARDING.segments(layout_of(text), by_sentence=True, held=None, whole=True)
    assert segment.text == words
    assert segment.guarded is not None
    assert [(each.offset, each.code.raw) for each in segment.guarded.codes] == offsets
