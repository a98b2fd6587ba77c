"""How sure translations are: the line beside a slow search for it, and what is kept with a store."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.calibration.certainty import MIN_PAIRS, SECTION, Certainty, fit_certainty, forget_certainty
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.errors import DatastoreDamagedError, SettingError

CONFIG = RetrievalConfig(8, 0.5, 10.0)
KNOWN = Certainty(2.0, 1.5, 100, CONFIG)
PAIRS = st.lists(
    st.tuples(st.floats(-8, 0), st.floats(0, 100)), min_size=MIN_PAIRS, max_size=60, unique_by=lambda pair: pair[0]
)


def expected(score: float, offset: float, slope: float) -> float:
    return 100 / (1 + math.exp(-(offset + slope * score)))


def test_the_line_that_made_the_likenesses_is_found() -> None:
    scores = np.random.default_rng(1).uniform(-4, 0, 400).tolist()
    found = fit_certainty(scores, [expected(each, 2.0, 1.5) for each in scores], CONFIG)
    assert found is not None
    assert found.pairs == 400
    assert (
        [found.of(each) for each in (-3.0, -1.0, 0.0)] == [KNOWN.of(each) for each in (-3.0, -1.0, 0.0)] == [8, 62, 88]
    )


@given(PAIRS)
def test_no_other_line_is_likelier_and_none_falls(pairs: list[tuple[float, float]]) -> None:
    scores, alike = zip(*pairs, strict=True)
    found = fit_certainty(scores, alike, CONFIG)
    assert found is not None

    def loss(offset: float, slope: float) -> float:
        parts = [min(max(expected(each, offset, slope) / 100, 1e-12), 1 - 1e-12) for each in scores]
        return -math.fsum(
            a / 100 * math.log(p) + (1 - a / 100) * math.log(1 - p) for a, p in zip(alike, parts, strict=True)
        )

    own = loss(found.offset, found.slope)
    for offset, slope in [(0.3, 0.0), (-0.3, 0.0), (0.0, 0.1), (0.0, -0.1), (0.3, 0.1), (-0.3, -0.1)]:
        other = found.offset + offset, found.slope + slope
        assert other[1] < 0 or loss(*other) >= own - 0.05 * len(pairs)  # it is drawn a little towards a flat one
    certain = [found.of(each) for each in sorted(scores)]
    assert certain == sorted(certain)
    assert 0 <= certain[0] <= certain[-1] <= 100


@pytest.mark.parametrize("alike", [[0.0] * 30, [100.0] * 30, [100.0] * 15 + [0.0] * 15])
def test_extremes_stay_finite_and_what_the_model_misjudges_is_the_mean(alike: list[float]) -> None:
    found = fit_certainty([-3 + each / 10 for each in range(30)], alike, CONFIG)
    assert found is not None
    if len(set(alike)) == 2:  # the likelier, the worse
        assert (found.slope, found.of(-3.0), found.of(0.0)) == (0.0, 50, 50)
    else:
        assert abs(found.of(-1.0) - alike[0]) <= 3


def test_too_few_and_what_is_no_number_say_nothing() -> None:
    scores = [-math.inf] * 5 + [-1.0] * (MIN_PAIRS - 1)
    assert fit_certainty(scores, [50.0] * len(scores), CONFIG) is None
    more = fit_certainty([*scores, -2.0], [50.0] * (len(scores) + 1), CONFIG)
    assert more is not None
    assert more.pairs == MIN_PAIRS
    assert KNOWN.of(-math.inf) == 0


def test_it_is_of_the_settings_that_it_was_measured_with(tmp_path: Path) -> None:
    assert Certainty.read(tmp_path) is None
    KNOWN.save(tmp_path)
    kept = Certainty.read(tmp_path)
    assert kept == KNOWN
    assert kept.holds_for(CONFIG)
    assert kept.holds_for(replace(CONFIG, cache=CacheConfig(4.0)))
    assert not kept.holds_for(replace(CONFIG, k=4))


@pytest.mark.parametrize(
    "change",
    [{"slope": -1.0}, {"slope": float("nan")}, {"offset": "high"}, {"pairs": 3}, {"config": None}, {"more": 1}],
)
def test_what_something_else_has_written_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    KNOWN.save(tmp_path)
    write_settings(tmp_path, **{SECTION: {**read_settings(tmp_path)[SECTION], **change}})
    with pytest.raises((DatastoreDamagedError, SettingError), match=r"certainty.*knnmt tune"):
        Certainty.read(tmp_path)
    forget_certainty(tmp_path)
    assert Certainty.read(tmp_path) is None
