from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.filters import FilterConfig, filter_pairs
from knnmt.corpus.pairs import SegmentPair
from knnmt.errors import SettingError

SHORT = st.text("ab ", min_size=1, max_size=4)
PAIRS = st.lists(st.builds(SegmentPair, SHORT, SHORT, st.just("x")), max_size=30)


def test_reasons_are_counted_and_the_rest_passes_in_order() -> None:
    pairs = [
        SegmentPair("Hund", "dog", "1"),
        SegmentPair("Hund", "dog", "2"),
        SegmentPair("Hund", "hound", "3"),
        SegmentPair("OK", " OK ", "4"),
        SegmentPair("Ei", "egg of a hen", "5"),
        SegmentPair("x" * 31, "y" * 31, "6"),
        SegmentPair("ab", "c", "7"),
        SegmentPair("a", "bc", "8"),
    ]
    dropped: Counter[str] = Counter()
    config = FilterConfig(max_characters=30, max_ratio=3.5, copies=False, duplicates=False)
    assert [pair.origin for pair in filter_pairs(pairs, config, dropped)] == ["1", "3", "7", "8"]
    assert dropped == {
        "duplicate": 1,
        "copy of the source": 1,
        "length ratio above 3.5": 1,
        "longer than 30 characters": 1,
    }


@given(PAIRS)
def test_without_settings_everything_passes(pairs: list[SegmentPair]) -> None:
    dropped: Counter[str] = Counter()
    assert list(filter_pairs(pairs, FilterConfig(), dropped)) == pairs
    assert not dropped


@given(
    PAIRS,
    st.none() | st.integers(1, 4),
    st.none() | st.sampled_from([1.0, 1.5, 2.0, 3.0]),
    st.booleans(),
    st.booleans(),
)
def test_like_a_plain_reference(
    pairs: list[SegmentPair], characters: int | None, ratio: float | None, copies: bool, duplicates: bool
) -> None:
    expected: list[SegmentPair] = []
    for pair in pairs:
        lengths = len(pair.source), len(pair.target)
        if (
            (characters is None or max(lengths) <= characters)
            and (ratio is None or max(lengths) / min(lengths) <= ratio)
            and (copies or pair.source.strip() != pair.target.strip())
            and (duplicates or (pair.source, pair.target) not in [(other.source, other.target) for other in expected])
        ):
            expected.append(pair)
    dropped: Counter[str] = Counter()
    config = FilterConfig(characters, ratio, copies, duplicates)
    assert list(filter_pairs(pairs, config, dropped)) == expected
    assert dropped.total() == len(pairs) - len(expected)


def test_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(SettingError, match="max_characters must be at least 1, got 0"):
        FilterConfig(max_characters=0)
    with pytest.raises(SettingError, match=r"max_ratio must be at least 1, got 0\.5"):
        FilterConfig(max_ratio=0.5)
