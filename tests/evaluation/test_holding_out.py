"""What is held out of a memory that is adapted to."""

from __future__ import annotations

from knnmt.corpus.pairs import SegmentPair
from knnmt.evaluation.holding_out import MIN_HELD_OUT, plan
from support.datastore_pairs import some_pairs


def test_a_tenth_is_held_out_and_halved_and_nothing_is_lost() -> None:
    pairs = some_pairs(1000)
    found = plan(lambda: pairs)
    assert 70 < len(found.held_out) < 130
    assert min(len(found.tuning), len(found.reported)) > 0.3 * len(found.held_out)
    assert sorted(found.held_out, key=id) == sorted([*found.tuning, *found.reported], key=id)
    built = list(found.built_first())
    assert [pair for pair in pairs if pair in built] == built
    assert [pair for pair in pairs if pair not in built] == found.held_out
    assert plan(lambda: pairs) != plan(lambda: pairs[1:])
    assert found.digest == plan(lambda: iter(pairs)).digest != plan(lambda: pairs[1:]).digest


def test_no_more_than_a_thousand_of_a_large_memory() -> None:
    found = plan(lambda: iter(some_pairs(40_000)))
    assert 880 < len(found.held_out) < 1120
    assert 0.8 < len(found.tuning) / len(found.reported) < 1.25


def test_pairs_with_the_same_source_are_held_out_together() -> None:
    pairs = [SegmentPair(pair.source, f"{pair.target} {turn}", "own") for pair in some_pairs(500) for turn in range(3)]
    found = plan(lambda: pairs)
    sides = [found.tuning, found.reported, list(found.built_first())]
    sources = [{pair.source for pair in side} for side in sides]
    assert sum(map(len, sources)) == 500
    assert all(len(side) == 3 * len(of_side) for side, of_side in zip(sides, sources, strict=True))


def test_too_little_is_not_held_out_at_all() -> None:
    for pairs in (some_pairs(10 * MIN_HELD_OUT - 1), some_pairs(1) * 1000, []):
        found = plan(lambda pairs=pairs: pairs)  # type: ignore[misc]
        assert (found.share, found.held_out, found.tuning, found.reported) == (0.0, (), (), ())
        assert list(found.built_first()) == pairs
        assert found.count == len(pairs)


def test_with_other_text_nothing_is_held_out() -> None:
    pairs, other = some_pairs(1000), some_pairs(3000, start=5000)
    found = plan(lambda: pairs, iter(other))
    assert (found.share, found.held_out, list(found.built_first())) == (0.0, (), pairs)
    assert len(found.tuning) == len(found.reported) == 1000
    assert {pair.source for pair in [*found.tuning, *found.reported]} < {pair.source for pair in other}
    assert found.digest != plan(lambda: pairs).digest != plan(lambda: pairs, other[1:]).digest
    assert plan(lambda: pairs, other[:5]).tuning == []
