from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.config import BatchingConfig
from knnmt.engine.batching import batches_by_length, with_gaps_filled
from knnmt.errors import SettingError


@given(
    lengths=st.lists(st.integers(1, 60), max_size=80),
    sentences=st.none() | st.integers(1, 9),
    tokens=st.none() | st.integers(1, 200),
)
def test_batches_hold_every_segment_once_within_their_limits(
    lengths: list[int], sentences: int | None, tokens: int | None
) -> None:
    if sentences is None and tokens is None:
        return
    batches = batches_by_length(lengths, BatchingConfig(sentences, tokens))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    flat = [lengths[index] for batch in batches for index in batch]
    assert flat == sorted(flat, reverse=True)
    for number, batch in enumerate(batches, start=1):
        longest = max(lengths[index] for index in batch)
        assert sentences is None or len(batch) <= sentences
        assert tokens is None or len(batch) == 1 or len(batch) * longest <= tokens
        if number < len(batches):  # a batch is only closed when it is full
            full = sentences is not None and len(batch) == sentences
            assert full or (tokens is not None and (len(batch) + 1) * longest > tokens)


def test_a_batch_needs_a_limit() -> None:
    with pytest.raises(SettingError, match="batch_size"):
        BatchingConfig(sentences=None, tokens=None)


@given(st.sets(st.integers(0, 30)))
def test_gaps_are_filled_by_moving_as_few_as_possible(places: set[int]) -> None:
    filled = with_gaps_filled(sorted(places))
    assert set(filled) == places
    assert sum(i != place for i, place in enumerate(filled)) == sum(place >= len(places) for place in places)
