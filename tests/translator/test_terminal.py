"""Explanations on a terminal: with colours, without, narrow, in wide characters, and with text that would do harm."""

from __future__ import annotations

import io
import re
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from knnmt import Explanation, Match, SegmentPair
from knnmt.translator.terminal import print_explanation
from support.made_explanations import END, evidence, explanation_of, made_explanation, near, translation_of


def printed(
    explanation: Explanation, *, width: int = 90, colours: bool = False, full: bool = False, no_color: bool = False
) -> str:
    out = io.StringIO()
    system: Literal["truecolor"] | None = "truecolor" if colours else None
    console = Console(file=out, width=width, force_terminal=colours, color_system=system, no_color=no_color)
    print_explanation(explanation, console, full)
    return out.getvalue()


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_without_colours_numbers_say_what_came_from_memory() -> None:
    assert lines(printed(made_explanation())) == [
        "source   Die Palette ist freigegeben.",
        "target   Skid(94) cleared(49).(32) [end](53)",
        "alone    The pallet is cleared.",
        "closest  80% Die Palette wurde freigegeben. → Skid cleared.  lager.tmx#tu1",
        "memory   62% of it  in brackets: per cent of each word",
        "",
        "  Skid cleared  72%  «Skid clear»ed.",
        "                     Die Palette wurde freigegeben.",
        "                     lager.tmx#tu1",
        "  .             32%  Tag cleared«.»",
        "                     Das Etikett wurde freigegeben.",
        "                     lager.tmx#tu2",
        "  [end]         53%  Skid cleared.«end»",
        "                     Die Palette wurde freigegeben.",
        "                     lager.tmx#tu1",
    ]


def test_a_number_after_a_mark_is_not_read_as_the_word_s() -> None:
    pair = SegmentPair("q", "Yes.", "own#1")
    made = translation_of(
        ("▁so", evidence(0, 1, "▁so")),
        ("▁on", evidence(0, 1, "▁on")),
        (".", evidence(0.5, 0.5, ".", near(".", pair, 1.0))),
    )
    assert lines(printed(explanation_of(made)))[1] == "target  so on(0).(67)"


def test_with_colours_words_are_shaded_and_bear_no_numbers() -> None:
    shown = printed(made_explanation(), colours=True)
    assert "Skid" in shown
    assert "(94)" not in shown
    assert re.search(r"\x1b\[1;30;48;2;63;174;154mSkid", shown)
    assert "(94)" in printed(made_explanation(), colours=True, no_color=True)


def test_of_many_passages_those_with_most_from_memory_are_shown_in_the_order_of_the_text() -> None:
    pairs = [SegmentPair("q", f"w{n}", f"own#{n}") for n in range(13)]
    weights = [0.9 if n % 4 else 0.3 for n in range(13)]
    chosen = [
        (f"▁w{n}", evidence(weight, 0.5, f"▁w{n}", near(f"▁w{n}", pair, 1.0)))
        for n, (weight, pair) in enumerate(zip(weights, pairs, strict=True))
    ]
    shown = printed(explanation_of(translation_of(*chosen)))
    named = [int(number) for number in re.findall(r"own#(\d+)", shown)]
    assert len(named) == 10
    assert named == sorted(named)
    assert {n for n in range(13) if n % 4} < set(named)
    assert "and 3 more" in shown


def test_in_full_every_neighbour_of_every_token_is_there() -> None:
    shown = " ".join(printed(made_explanation(), full=True).split())
    assert "Sk: The model gives 1.0% and the memory 80%. With λ = 0.90 the result is 72%." in shown
    assert "≠ 20% «T»ag cleared." in shown
    assert "come from the cache" in shown
    assert "ed: The memory was not searched" in shown
    assert shown.count("lager.tmx#tu2") == 3


@pytest.mark.parametrize("width", [30, 50, 90])
@pytest.mark.parametrize("full", [False, True])
def test_lines_fit_a_narrow_terminal_also_in_wide_characters(width: int, full: bool) -> None:
    pair = SegmentPair("来源" * 30, "目标文本" * 30, "长.tmx#1")
    made = explanation_of(
        translation_of(("▁目", evidence(0.9, 0.1, "▁目", near("▁目", pair, 1.0))), (END, None), source="来源" * 30)
    )
    shown = printed(made, width=width, full=full)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert "«目»" in shown
    assert "…" in shown  # what is far from the mark is cut


def test_markup_is_shown_and_control_characters_are_written_out() -> None:
    nasty = "[bold]x[/bold] [link=file:///x]y \x1b[31m\x07\x9b\u202e\n\tz :smile: {0}"
    pair = SegmentPair(nasty, f"{nasty} word", nasty)
    made = translation_of(
        ("▁word", evidence(0.9, 0.1, "▁word", near("▁word", pair, 1.0))),
        source=nasty,
        match=Match(nasty, nasty, nasty, 70, False),
    )
    for full in (False, True):
        shown = printed(explanation_of(made, nasty), width=400, full=full)
        assert shown.count("[bold]x[/bold] [link=file:///x]y ␛[31m␇\\u009b\\u202e↵⇥z :smile: {0}") == 8
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_a_translation_of_nothing_and_one_without_memory() -> None:
    assert "0% of it" in printed(explanation_of(translation_of(source=" "), ""))
    made = explanation_of(translation_of(("▁a", evidence(0.0, 0.5, "▁a")), (END, evidence(0.0, 0.5, END))), "a")
    assert lines(printed(made))[1:] == [
        "target  a",
        "alone   the same",
        "memory  0% of it  in brackets: per cent of each word",
    ]
