"""Which FAISS index a kind asks for, for stores of every size."""

from __future__ import annotations

import pytest

from knnmt.errors import SettingError
from knnmt.index.kinds import KINDS, SearchSettings, codes_for, kind_named, lists_for


def test_lists_are_a_power_of_two_that_can_be_trained() -> None:
    for entries in (1, 38, 39, 78, 300, 5_000, 264_432, 700_000, 1_294_636, 10**8):
        lists = lists_for(entries)
        assert lists & (lists - 1) == 0
        assert 1 <= lists <= 4096
        assert lists == 1 or entries / lists >= 39
    assert [lists_for(n) for n in (300, 700_000, 1_294_636)] == [4, 1024, 2048]


def test_codes_divide_the_dimensions() -> None:
    assert {dim: codes_for(dim) for dim in (320, 256, 192, 128, 64, 32, 48, 66, 67)} == {
        320: 64, 256: 64, 192: 64, 128: 64, 64: 64, 32: 32, 48: 48, 66: 33, 67: 1,
    }  # fmt: skip


def test_the_papers_index() -> None:
    assert KINDS["ivfpq"].factory(1_000_000, 320) == "IVF4096,PQ64x8np"
    assert KINDS["ivfpq"].factory(39 * 4096, 320) == "IVF4096,PQ64x8np"
    assert KINDS["ivfpq"].factory(39 * 4096 - 1, 128) == "IVF512,PQ64x8np"
    assert KINDS["ivfpq"].settings == SearchSettings(probes=32, candidates=0)


def test_two_stage_kinds_are_those_that_were_measured() -> None:
    assert KINDS["rabitq"].factory(700_000, 320) == "IVF1024,RaBitQfs"
    assert KINDS["pq4"].factory(700_000, 320) == "PCAR160,IVF1024,PQ160x4fs"
    assert KINDS["pq4"].factory(700_000, 33) == "PCAR32,IVF1024,PQ32x4fs"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_searches_a_handful_flat(kind: str) -> None:
    assert KINDS[kind].factory(100, 32) == "Flat"
    assert KINDS[kind].factory(600, 320) == "Flat"


def test_settings_and_names_that_cannot_work_are_refused() -> None:
    for probes, candidates, reach in ((0, 1, 0), (1, -1, 0), (1 << 40, 1, 0), (1, 1 << 40, 0), (1, 1, float("nan"))):
        with pytest.raises(SettingError, match=r"must (lie between|be 0, or)"):
            SearchSettings(probes, candidates, reach)
    with pytest.raises(SettingError, match=r"one of exact, ivfpq, .*got 'ivf'"):
        kind_named("ivf")
