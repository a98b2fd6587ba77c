"""What is held out of a memory that is adapted to."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.adapting.holding_out import MIN_HELD_OUT, NearDuplicates, Plan, plan
from knnmt.corpus.pairs import SegmentPair
from support.datastore_pairs import some_pairs


def documents(count: int, length: int, seed: int = 7) -> list[SegmentPair]:
    """Documents of so many sentences. Each has a vocabulary of its own besides the common words."""
    dice = random.Random(seed)
    common = [f"wort{number}" for number in range(400)]
    pairs = []
    for number in range(count):
        own = [f"begriff{number}x{each}" for each in range(12)]
        for line in range(length):
            words = [*dice.sample(own, 4), *dice.sample(common, 4), f"zeile{number}x{line}"]
            pairs.append(SegmentPair(" ".join(words), " ".join(words).upper(), f"seite{number}.md#{line}"))
    return pairs


def shuffled(pairs: list[SegmentPair]) -> list[SegmentPair]:
    return random.Random(5).sample(pairs, len(pairs))


def assert_nothing_is_lost(found: Plan, pairs: list[SegmentPair]) -> None:
    held = [pair for place, pair in enumerate(pairs) if place in found.places]
    assert found.held_out == held
    assert list(found.built_first()) == [pair for place, pair in enumerate(pairs) if place not in found.places]
    assert {id(pair) for pair in [*found.tuning, *found.reported]} <= {id(pair) for pair in held}


@pytest.mark.parametrize("length", [20, 37, 400])
def test_whole_stretches_of_a_memory_in_order_are_held_out(length: int) -> None:
    pairs = documents(4000 // length, length)
    found = plan(lambda: pairs)
    assert found.ordered
    assert_nothing_is_lost(found, pairs)
    assert 0.08 * len(pairs) < len(found.held_out) < 0.12 * len(pairs)
    assert sorted(found.held_out, key=id) == sorted([*found.tuning, *found.reported], key=id)
    assert 0.6 < len(found.tuning) / len(found.reported) < 1.7
    stretch = min(50, length)
    ends = [place for place in found.places if place + 1 not in found.places]
    assert len(found.places) >= 0.7 * stretch * len(ends)  # single sentences would have as many ends
    pages = {pair.origin.partition("#")[0] for pair in found.tuning} & {
        pair.origin.partition("#")[0] for pair in found.reported
    }
    assert not pages or length == 400


def test_single_sentences_of_a_shuffled_memory_are_held_out() -> None:
    pairs = shuffled(documents(100, 40))
    found = plan(lambda: pairs)
    assert not found.ordered
    assert_nothing_is_lost(found, pairs)
    assert 300 < len(found.held_out) < 500
    assert min(len(found.tuning), len(found.reported)) > 0.3 * len(found.held_out)
    assert plan(lambda: pairs) != plan(lambda: pairs[1:])
    assert found.digest == plan(lambda: iter(pairs)).digest != plan(lambda: pairs[1:]).digest


def test_what_is_nearly_the_same_is_held_out_with_them_and_not_measured() -> None:
    pairs = shuffled(documents(100, 40))
    others = [SegmentPair(f"{pair.source} anders", pair.target, pair.origin) for pair in pairs[:1000]]
    found = plan(lambda: shuffled([*pairs, *others]))
    held = {pair.source for pair in found.held_out}
    for pair, other in zip(pairs, others, strict=False):
        assert (pair.source in held) == (other.source in held)
    measured = {pair.source for pair in [*found.tuning, *found.reported]}
    assert len(held - measured) > 30
    alike = len(found.held_out) - len(found.tuning) - len(found.reported)
    assert found.parts_in_words.endswith(f", {alike} nearly the same as one of them")
    assert found.in_words.endswith("because the memory is in no order. New documents may gain less")


def test_no_more_than_a_thousand_of_a_large_memory() -> None:
    for pairs in (documents(800, 50), shuffled(documents(800, 50))):
        found = plan(lambda pairs=pairs: iter(pairs))  # type: ignore[misc]
        assert 880 < len(found.held_out) < 1120
        assert 0.8 < len(found.tuning) / len(found.reported) < 1.25


def test_pairs_with_the_same_source_are_held_out_together() -> None:
    pairs = [SegmentPair(pair.source, f"{pair.target} {turn}", "own") for pair in some_pairs(500) for turn in range(3)]
    found = plan(lambda: shuffled(pairs))
    assert not found.ordered
    sides = [found.tuning, found.reported, list(found.built_first())]
    sources = [{pair.source for pair in side} for side in sides]
    assert not sources[0] & sources[1] | sources[0] & sources[2] | sources[1] & sources[2]
    assert all(len(side) == 3 * len(of_side) for side, of_side in zip(sides, sources, strict=True))


def test_too_little_is_not_held_out_at_all() -> None:
    for pairs in (some_pairs(10 * MIN_HELD_OUT - 1), some_pairs(1) * 1000, []):
        found = plan(lambda pairs=pairs: pairs)  # type: ignore[misc]
        assert (found.places, found.held_out, found.tuning, found.reported) == (frozenset(), (), (), ())
        assert list(found.built_first()) == pairs
        assert found.count == len(pairs)


def test_with_other_text_nothing_is_held_out() -> None:
    pairs, other = some_pairs(1000), some_pairs(3000, start=5000)
    found = plan(lambda: pairs, iter(other))
    assert (found.places, found.held_out, list(found.built_first())) == (frozenset(), (), pairs)
    assert len(found.tuning) == len(found.reported) == 1000
    assert {pair.source for pair in [*found.tuning, *found.reported]} < {pair.source for pair in other}
    assert found.digest != plan(lambda: pairs).digest != plan(lambda: pairs, other[1:]).digest
    assert plan(lambda: pairs, other[:5]).tuning == []


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=5),
    st.sets(st.sampled_from("abcdefghij"), max_size=7),
)
def test_near_duplicates_are_those_of_a_comparison_with_all(sources: list[set[str]], text: set[str]) -> None:
    expected = any(text and len(text & each) / len(text | each) >= 0.6 for each in sources)
    assert NearDuplicates([" ".join(each) for each in sources]).include(" ".join(text)) == expected
