"""Codes put into translations come out once each, well nested by any alignment, and in their places by a sound one."""

from __future__ import annotations

from itertools import count

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from knnmt.protection.marked import Code, Marked, Role, written
from knnmt.protection.placing import Placed, arrange, proportional

DEEP = 3_000
TEXT = "one two, three four (five)"
UNITS = [(0, 3), (4, 7), (7, 8), (9, 14), (15, 19), (20, 21), (21, 25), (25, 26)]


@st.composite
def nested_codes(draw: st.DrawFn, tokens: int) -> list[Placed]:
    """Codes of a source of some tokens, well nested; a pair may be cut by its beginning or its end."""
    numbers = count(1)

    def inside(low: int, high: int, depth: int) -> list[Placed]:
        found: list[Placed] = []
        place = low
        for _ in range(draw(st.integers(0, 2 if depth else 0))):
            start = draw(st.integers(place, high))
            end = draw(st.integers(start, high))
            if draw(st.booleans()):
                found.append(Placed(Code(f"<x{next(numbers)}/>"), start, left=draw(st.booleans())))
                place = start
            else:
                number = next(numbers)
                held = inside(start, end, depth - 1)
                opening, closing = (
                    Code(f"<b{number}>", Role.OPENING, number),
                    Code(f"</b{number}>", Role.CLOSING, number),
                )
                found += [Placed(opening, start), *held, Placed(closing, end)]
                place = end
        return found

    codes = inside(0, tokens, 3)
    cut = draw(st.integers(0, len(codes)))
    return codes[cut:] if draw(st.booleans()) else codes[: len(codes) - cut]


def is_well_nested(text: Marked) -> bool:
    open_: list[int] = []
    pairs = {part.pair for part in text if isinstance(part, Code) and part.role is Role.OPENING}
    for part in text:
        if isinstance(part, Code) and part.pair is not None:
            if part.role is Role.OPENING:
                open_.append(part.pair)
            elif part.pair in pairs and (not open_ or open_.pop() != part.pair):
                return False
            elif part.pair not in pairs and open_:
                return False  # what was cut off reaches the beginning
    return True


@given(nested_codes(6), st.lists(st.lists(st.floats(0, 1, width=32), min_size=6, max_size=6), min_size=8, max_size=8))
def test_every_code_once_and_well_nested_by_any_alignment(codes: list[Placed], rows: list[list[float]]) -> None:
    found = arrange(TEXT, UNITS, codes, np.array(rows, dtype=np.float32)).marked
    assert sorted(part.raw for part in found if isinstance(part, Code)) == sorted(each.code.raw for each in codes)
    assert "".join(part for part in found if isinstance(part, str)) == TEXT
    whole = {each.code.pair for each in codes}
    closed = [each.code.pair for each in codes if each.code.role is Role.CLOSING]
    opened = [each.code.pair for each in codes if each.code.role is Role.OPENING]
    if sorted(map(str, closed)) == sorted(map(str, opened)):
        assert is_well_nested(found), (whole, written(found))


@given(nested_codes(8))
def test_a_translation_word_by_word_has_its_codes_where_they_were(codes: list[Placed]) -> None:
    """The obvious reference: each code before the unit that answers to its token."""
    pairs = {each.code.pair for each in codes if each.code.pair}
    if any(sum(each.code.pair == pair for each in codes) != 2 for pair in pairs):
        return
    found = arrange(TEXT, UNITS, codes, np.eye(8, dtype=np.float32)).marked
    starts: dict[str, int] = {}
    for each in codes:
        starts.setdefault(each.code.raw, each.token)
    place = 0
    for part in found:
        if isinstance(part, str):
            place += len(part)
        else:
            before = sum(end <= place for _, end in UNITS)
            assert before == starts[part.raw]


def test_words_that_change_their_order_take_their_codes_along() -> None:
    codes = [Placed(Code("<b>", Role.OPENING, 1), 0), Placed(Code("</b>", Role.CLOSING, 1), 1), Placed(Code("<x/>"), 2)]
    alignment = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]], dtype=np.float32)
    found = arrange("drei zwei eins", [(0, 4), (5, 9), (10, 14)], codes, alignment)
    assert found.whole
    assert "<b>eins</b>" in written(found.marked)


def test_white_space_takes_the_place_of_a_space() -> None:
    found = arrange(TEXT, UNITS, [Placed(Code("\n"), 3, blank=True)], np.eye(8, dtype=np.float32))
    assert written(found.marked) == "one two,\nthree four (five)"


def test_a_pair_around_words_that_finds_none_is_told() -> None:
    pairs = [(1, 0, 1), (2, 1, 2)]
    codes = [
        placed
        for pair, start, end in pairs
        for placed in (Placed(Code("<b>", Role.OPENING, pair), start), Placed(Code("</b>", Role.CLOSING, pair), end))
    ]
    assert not arrange("eins", [(0, 4)], codes, np.ones((1, 2), dtype=np.float32)).whole
    assert arrange("eins zwei", [(0, 4), (5, 9)], codes, np.ones((2, 2), dtype=np.float32)).whole


def test_proportional_alignment() -> None:
    assert proportional(2, 4).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert np.allclose(proportional(3, 2).sum(1), 2 / 3)


def test_codes_may_be_nested_more_deeply_than_python_allows_calls() -> None:
    opening = [Placed(Code(f"<{number}>", Role.OPENING, number), 0) for number in range(DEEP)]
    closing = [Placed(Code(f"</{number}>", Role.CLOSING, number), 1) for number in reversed(range(DEEP))]
    arranged = arrange("word", [(0, 4)], [*opening, *closing], proportional(1, 1))
    assert arranged.whole
    assert arranged.marked == (*(each.code for each in opening), "word", *(each.code for each in closing))
    unopened = arrange("word", [(0, 4)], closing, proportional(1, 1))
    assert unopened.marked == ("word", *(each.code for each in closing))
