"""Texts are handed on in their order, however their segments are decoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from knnmt.translator.session import Window


@given(st.lists(st.integers(0, 3), max_size=12), st.randoms(), st.integers(1, 5))
def test_every_text_comes_once_in_its_order_when_it_can(counts: list[int], chance: object, size: int) -> None:
    window = Window(counts)
    segments = list(range(sum(counts)))
    chance.shuffle(segments)  # type: ignore[attr-defined]
    firsts = [sum(counts[:text]) for text in range(len(counts))]
    decoded: set[int] = set()
    come: list[int] = []
    done = 0
    for start in range(-size, len(segments), size):
        batch = segments[start : start + size] if start >= 0 else []
        done += window.mark_decoded(batch)
        decoded.update(batch)
        for text, mine in window.pop_ready():
            assert (mine.start, mine.stop - mine.start) == (firsts[text], counts[text])
            come.append(text)
        whole = [decoded.issuperset(range(firsts[text], firsts[text] + counts[text])) for text in range(len(counts))]
        assert done == sum(whole)
        assert come == list(range([*whole, False].index(False)))
    assert come == list(range(len(counts)))
