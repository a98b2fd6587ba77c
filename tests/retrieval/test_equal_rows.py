"""Equal rows are found, and nothing else is taken for equal."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.retrieval.open_store import distinct_rows

rows_of_few_kinds = st.lists(st.integers(0, 5), min_size=1, max_size=25)


def rows(kinds: list[int], dim: int = 7) -> torch.Tensor:
    return torch.randn(6, dim, generator=torch.Generator().manual_seed(dim))[kinds]


@given(rows_of_few_kinds, st.sampled_from([1, 7, 33, 320]))
def test_each_kind_of_row_is_searched_once(kinds: list[int], dim: int) -> None:
    queries = rows(kinds, dim)
    found = distinct_rows(queries)
    if len(set(kinds)) == len(kinds):
        assert found is None
        return
    assert found is not None
    searched, which = found
    assert torch.equal(queries[searched][which], queries)
    assert len(searched) == len(np.unique(queries.numpy(), axis=0)) == len(set(kinds))


@given(rows_of_few_kinds)
def test_rows_that_only_look_equal_are_kept_apart(kinds: list[int]) -> None:
    """With a direction of zeros all products are equal, and a first column of zeros tells nothing either."""
    queries = torch.cat([torch.zeros(len(kinds), 1), rows(kinds)], dim=1)
    found = distinct_rows(queries, direction=torch.zeros(queries.shape[1]))
    assert (found is None) == (len(kinds) == 1)
    if found is not None:
        assert torch.equal(queries[found[0]][found[1]], queries)


def test_one_row_and_none() -> None:
    assert distinct_rows(torch.ones(1, 4)) is None
    assert distinct_rows(torch.ones(0, 4)) is None


def test_all_equal() -> None:
    found = distinct_rows(torch.ones(9, 4))
    assert found is not None
    assert [each.tolist() for each in found] == [[0], [0] * 9]


def test_rows_that_are_no_numbers_are_equal_to_nothing() -> None:
    queries = torch.tensor([[float("nan"), 1.0], [float("nan"), 1.0], [2.0, 1.0], [2.0, 1.0]])
    found = distinct_rows(queries)
    assert found is not None
    searched, which = found
    assert len(searched) == 3
    assert which[2] == which[3]
    assert len({*which[:3].tolist()}) == 3
