"""Rows in one array are the lists that they were made of, whatever is done with them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.engine.rows import Rows

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=8)


@given(LISTS)
def test_rows_are_the_lists_they_were_made_of(lists: list[list[int]]) -> None:
    rows = Rows.of(lists)
    assert rows.numbers.dtype == np.int32
    assert Rows.of(rows) is rows
    assert list(rows) == lists
    assert rows.lengths.tolist() == [*map(len, lists)]
    assert rows.longest == max(map(len, lists), default=0)
    assert list(pickle.loads(pickle.dumps(rows, 5))) == lists
    found = [(row, place) for row, each in enumerate(lists) for place in range(len(each))]
    assert list(zip(*(each.tolist() for each in rows.places()), strict=True)) == found
    assert rows.padded(-1).tolist() == [each + [-1] * (rows.longest - len(each)) for each in lists]


@given(LISTS, st.data())
def test_rows_are_taken_cut_and_joined_as_lists_are(lists: list[list[int]], data: st.DataObject) -> None:
    rows = Rows.of(lists)
    first, end = (data.draw(st.integers(-10, 10)) for _ in range(2))
    part = rows[first:end]
    assert list(part) == lists[first:end]
    assert list(Rows.joined([part, rows, part])) == [*lists[first:end], *lists, *lists[first:end]]
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=9)) if lists else []
    assert list(part.taken(np.arange(len(part)))) == lists[first:end]
    assert list(rows.taken(chosen)) == [lists[row] for row in chosen]


def test_only_rows_that_follow_one_another_are_cut_out() -> None:
    with pytest.raises(ValueError, match="follow one another"):
        Rows.of([[1], [2], [3]])[::2]
    with pytest.raises(IndexError):
        Rows.of([[1]])[1]
