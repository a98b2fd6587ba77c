"""Choosing segments that cover a source: beside the plain definition, compiled and in NumPy, as the store changes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import SegmentRecord, StoredFile
from knnmt.datastore.segment import Segment, source_arrays
from knnmt.errors import DatastoreDamagedError
from knnmt.segments import covering, source_side
from knnmt.segments.covering import Covering, SourceIndex
from knnmt.segments.repeats import Repeats, Restated
from knnmt_lab.reproduction.choosers import CHOOSERS

Sources = list[list[int]]


def segment_of(
    sources: Sources, removed: list[int] | None = None, name: str = "", owners: list[int] | None = None
) -> Segment:
    """A segment that has a source side, and nothing else but whose sentence each entry is."""
    arrays = {**source_arrays(sources), "sentences": np.array(owners or [], np.int32)}
    digest = f"{abs(hash((name, str(sources)))):064x}"[-64:]
    record = SegmentRecord(StoredFile("s", 0, digest), len(sources), len(arrays["sentences"]))
    return Segment(record, arrays, np.array(removed or [], np.int32), (), Path("s"), 1000)


def grams_of(tokens: list[int], orders: int = 4) -> set[tuple[int, ...]]:
    return {tuple(tokens[i : i + n]) for n in range(1, orders + 1) for i in range(len(tokens) - n + 1)}


def assert_as_defined(
    found: Covering,
    row: int,
    sources: Sources,
    asked: list[int],
    gone: set[int],
    orders: int = 4,
    left_over: float = 0.5,
) -> None:
    """What is chosen at each step gains as much as any sentence could, of all that share a token with the source. Of
    sentences with the same source the first stands for all.
    """
    held = Counter(token for source in sources for token in source)
    idf = {token: math.log(1 + (max(len(sources) - held[token], 0) + 0.5) / (held[token] + 0.5)) for token in asked}
    whole = {gram: sum(idf[token] for token in gram) * len(gram) ** 0.5 for gram in grams_of(asked, orders)}
    left = dict(whole)
    share = [number for number, source in enumerate(sources) if set(source) & set(asked) and number not in gone]
    share = [number for number in share if sources[number] not in (sources[other] for other in share if other < number)]
    has = {number: grams_of(sources[number], orders) & whole.keys() for number in share}

    def gain(number: int) -> float:
        return float(sum(left[gram] for gram in has[number]) * (10 + len(sources[number])) ** -0.3)

    chosen = [number for number in found.sentences[row].tolist() if number >= 0]
    assert len(chosen) == len(set(chosen)) == min(found.sentences.shape[1], len(share))
    for place, number in enumerate(chosen):
        best = max(gain(other) for other in share if other not in chosen[:place])
        assert gain(number) == pytest.approx(best, rel=1e-4)
        for gram in has[number]:
            left[gram] *= left_over
    total = sum(whole.values())
    covered = sum(whole[gram] for gram in whole if left[gram] < whole[gram])
    assert found.covered[row] == pytest.approx(covered / total, abs=1e-4)
    by_one = max((sum(whole[gram] for gram in has[number]) for number in share), default=0)
    assert found.by_one[row] == pytest.approx(by_one / total, abs=1e-4)


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(covering, "library", lambda: None)
    return str(request.param)


def made_sources(count: int, seed: int, kinds: int = 60) -> Sources:
    """Of tokens as frequent as words are."""
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, kinds + 1)
    lengths = chance.integers(1, 25, count)
    return [chance.choice(kinds, size, p=weights / weights.sum()).tolist() for size in lengths]


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 8), st.integers(0, 3))
@pytest.mark.parametrize("compiled", [True, False])
def test_it_is_the_choice_of_the_definition(compiled: bool, seed: int, size: int, count: int, parts: int) -> None:
    sources = made_sources(size, seed)
    asked = made_sources(5, seed + 1, kinds=70)  # some of whose tokens occur nowhere
    gone = set(range(0, size, 7)) if seed % 2 else set()
    bounds = np.linspace(0, size, parts + 2).astype(int)
    segments = [
        segment_of(sources[a:b], [number - a for number in sorted(gone) if a <= number < b], str(a))
        for a, b in pairwise(bounds)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering, "MAX_POSTINGS", 10_000)  # whatever holds a token is looked at
        if not compiled:
            patch.setattr(covering, "library", lambda: None)
        found = SourceIndex(segments).choose(asked, count)
    for row, tokens in enumerate(asked):
        assert_as_defined(found, row, sources, tokens, gone)


@pytest.mark.parametrize("name", ["unigrams", "bigrams", "covered-once", "not-halved"])
def test_a_class_with_another_constant_is_that_of_its_definition(name: str) -> None:
    chooser = CHOOSERS[name]
    assert (chooser.orders, chooser.left) != (4, 0.5)
    sources, asked = made_sources(40, 1), made_sources(5, 2, kinds=70)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering, "MAX_POSTINGS", 10_000)
        found = chooser([segment_of(sources)]).choose(asked, 6)
        usual = SourceIndex([segment_of(sources)]).choose(asked, 6)
    for row, tokens in enumerate(asked):
        assert_as_defined(found, row, sources, tokens, set(), chooser.orders, chooser.left)
    assert found.sentences.tolist() != usual.sentences.tolist()


def test_candidates_bound_what_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, asked = made_sources(900, 1), made_sources(5, 2, kinds=70)
    segments = [segment_of(sources)]
    few, many = (CHOOSERS[name](segments).choose(asked, 6) for name in ("few-candidates", "many-candidates"))
    assert few.sentences.tolist() != many.sentences.tolist()
    monkeypatch.setattr(covering, "library", lambda: None)
    for name, found in (("few-candidates", few), ("many-candidates", many)):
        assert CHOOSERS[name](segments).choose(asked, 6).sentences.tolist() == found.sentences.tolist()


def test_a_source_of_many_tokens_is_covered_to_its_end(way: str) -> None:
    """Longer than the words of 64 places that compiled code has it in; n-grams cross from one to the next."""
    asked = made_sources(1, 5, kinds=400)[0] * 3 + list(range(400, 550))
    sources = [asked[first : first + 9] + made_sources(1, first)[0] for first in range(0, len(asked), 4)]
    found = SourceIndex([segment_of(sources)]).choose([asked], 12)
    assert_as_defined(found, 0, sources, asked, set())
    assert found.covered[0] > 0.3, way


def test_compiled_code_and_numpy_choose_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last one, from more sentences than the compiled code adds up at a time."""
    sources = made_sources(20_000, 1, kinds=3000)
    index, asked = SourceIndex([segment_of(sources[:19_000]), segment_of(sources[19_000:])]), sources[::4000]
    compiled = index.choose(asked, 20)
    monkeypatch.setattr(covering, "library", lambda: None)
    assert np.array_equal(compiled.sentences, index.choose(asked, 20).sentences)


def test_what_came_later_is_found_as_if_it_had_been_there(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_side, "MAX_JOINED_ENTRIES", -1)  # even the smallest are put in order for long
    sources = made_sources(60, 3)
    first = [segment_of(sources[:40], name="a"), segment_of(sources[40:50], name="b")]
    earlier = SourceIndex(first)
    later = SourceIndex([*first, segment_of(sources[50:], name="c")], earlier)
    assert later._base is earlier._base  # not put in order again
    joined = SourceIndex([first[0], segment_of(sources[40:], name="d")], later)
    asked = made_sources(4, 9)
    whole = SourceIndex([segment_of(sources)]).choose(asked, 6)
    for index in (later, joined):
        found = index.choose(asked, 6)
        assert np.array_equal(found.sentences, whole.sentences), way
        assert found.covered == pytest.approx(whole.covered)


def joined(segments: list[Segment], name: str) -> Segment:
    """One segment in the place of several, with what was removed from them."""
    sources: Sources = []
    owners: list[int] = []
    removed: list[int] = []
    for segment in segments:
        offsets, first = segment.arrays["source_offsets"], len(sources)
        sources += [part.tolist() for part in np.split(segment.arrays["source_tokens"], offsets[1:-1])]
        owners += (segment.arrays["sentences"] + first).tolist()
        removed += (segment.removed + first).tolist()
    return segment_of(sources, removed, name, owners)


def compacted(segment: Segment, name: str) -> Segment:
    """The same without what was removed."""
    offsets, left = segment.arrays["source_offsets"], segment.live_sentences()
    every = np.split(segment.arrays["source_tokens"], offsets[1:-1])
    owners = segment.arrays["sentences"]
    return segment_of(
        [every[sentence].tolist() for sentence in left],
        name=name,
        owners=np.searchsorted(left, owners[np.isin(owners, left)]).tolist(),
    )


def assert_the_same(one: SourceIndex, other: SourceIndex, asked: Sources) -> None:
    assert str(one._passed_over) == str(other._passed_over)
    chosen = one.choose(asked, 5).sentences
    assert np.array_equal(chosen, other.choose(asked, 5).sentences)
    entries = zip(one.entries_of(chosen), other.entries_of(chosen), strict=True)
    assert all(mine.tolist() == others.tolist() for mine, others in entries)


@given(st.data(), st.sampled_from([-1, 6, 40]), st.sampled_from([0, 30, 1 << 20]), st.booleans())
def test_an_index_that_follows_its_store_is_the_one_of_its_state(
    data: st.DataObject, long_there: int, newer: int, compiled: bool
) -> None:
    """Whatever is added, removed, joined and compacted: the same choice, and the same entries, as made anew."""
    chance = np.random.default_rng(data.draw(st.integers(0, 1000)))
    pool = made_sources(12, int(chance.integers(1000)), kinds=30)  # few, so that many are the same

    def drawn(name: str) -> Segment:
        sources = [pool[number] for number in chance.integers(0, len(pool), chance.integers(1, 6))]
        return segment_of(sources, [], name, np.repeat(np.arange(len(sources)), chance.integers(0, 3)).tolist())

    def changed(segments: list[Segment], change: str, turn: int) -> list[Segment]:
        place = int(chance.integers(len(segments)))
        before, segment, after = segments[:place], segments[place], segments[place + 1 :]
        if change == "add":
            return [*segments, drawn(f"added {turn}")]
        if change == "join":
            return [*before, joined(segments[place:], f"joined {turn}")]
        if change == "compact":
            return [*before, compacted(segment, f"compacted {turn}"), *after]
        gone = np.union1d(segment.removed, chance.integers(0, 6, 2))
        return [*before, replace(segment, removed=gone[gone < segment.record.sentences].astype(np.int32)), *after]

    segments, index = [drawn(f"first {number}") for number in range(3)], None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_side, "MAX_JOINED_ENTRIES", long_there)
        patch.setattr(source_side.SourceSide, "max_newer_tokens", newer)
        patch.setattr(covering, "MAX_POSTINGS", 10_000)
        if not compiled:
            patch.setattr(covering, "library", lambda: None)
        for turn in range(8):
            if turn % int(chance.integers(1, 4)) == 0:  # else one that reads it sees several changes at once
                index = SourceIndex(segments, index)
                assert_the_same(index, SourceIndex(segments), pool)
            segments = changed(segments, data.draw(st.sampled_from(["add", "remove", "join", "compact"])), turn)


def test_the_postings_that_are_read_are_bounded(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that nearly every sentence has proposes nothing, but counts for those that others propose."""
    sources = [[1, 2, 3] for _ in range(500)]
    sources[123] = [1, 7, 3]
    sources[321] = [1, 2, 7]
    sources[200:] = [[1, 2, 3, number] for number in range(1000, 1300)]
    sources[321] = [1, 2, 7]
    monkeypatch.setattr(covering, "MAX_POSTINGS", 25)
    found = SourceIndex([segment_of(sources)]).choose([[1, 2, 7]], 4)
    assert found.sentences.tolist() == [[321, 123, -1, -1]], way
    assert found.by_one.tolist() == pytest.approx([1.0])


def test_copies_of_a_source_use_up_one_choice_and_all_are_searched(way: str) -> None:
    """The first of them stands for all, and the next if that was removed."""
    sources = [[1, 2, 3]] * 5 + [[1, 2, 9], [2, 3, 8]] + [[1, 2, 3]] * 4
    owners = np.repeat(np.arange(11), 2).tolist()
    index = SourceIndex([segment_of(sources, owners=owners)])
    found = index.choose([[1, 2, 3]], 3).sentences[0]
    assert sorted(found.tolist()) == [0, 5, 6], way
    assert entries_of(index, found) == list(range(22))
    assert entries_of(index, np.array([5])) == [10, 11]
    other = SourceIndex([segment_of(sources[:7], [0], "a", owners[:14]), segment_of(sources[7:], [], "b", owners[:8])])
    found = other.choose([[1, 2, 3]], 3).sentences[0]
    assert sorted(found.tolist()) == [1, 5, 6]
    assert entries_of(other, found[found == 1]) == [*range(2, 10), *range(14, 22)]


def test_nothing_is_chosen_where_nothing_is_shared(way: str) -> None:
    index = SourceIndex([segment_of([[1, 2], [3]])])
    found = index.choose([[5, 4_000_000, 6], []], 2)
    assert found.sentences.tolist() == [[-1, -1], [-1, -1]], way
    assert found.covered.tolist() == found.by_one.tolist() == [0, 0]
    assert SourceIndex([]).choose([[1]], 1).sentences.tolist() == [[-1]]


def entries_of(index: SourceIndex, sentences: Array, repeats: Repeats | None = None) -> list[int]:
    [ids] = index.entries_of(sentences[None], repeats)
    found: list[int] = ids.tolist()
    return found


def test_the_entries_of_sentences(way: str) -> None:
    """Of which some may have none, after pruning."""
    first, second = segment_of([[1], [2], [3]], owners=[0, 0, 2]), segment_of([[3], [4]], owners=[0, 1, 1])
    index = SourceIndex([first, second])
    assert entries_of(index, np.array([4, 0, -1, 1])) == [0, 1, 4, 5], way
    assert entries_of(index, np.array([2, 3])) == [2, 3]
    assert entries_of(index, np.array([-1])) == []
    several = index.entries_of(np.array([[4, 0], [-1, -1], [2, 4]]))
    assert [each.tolist() for each in several] == [[0, 1, 4, 5], [], [2, 3, 4, 5]]


def test_entries_that_say_the_same_are_searched_once(way: str) -> None:
    index = SourceIndex([segment_of([[1], [2], [3]], owners=[0, 0, 1, 1, 2])])
    base, newer = (
        Restated(np.array(ids), np.array(firsts), np.ones(len(ids), np.int32))
        for ids, firsts in (([0, 2, 3], [0, 0, 1]), ([3, 4], [3, 1]))
    )
    assert entries_of(index, np.array([1]), Repeats(base, newer)) == [0, 3], way
    assert entries_of(index, np.array([2, 0]), Repeats(base, newer)) == [0, 1]


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("posting_sentences", 0, 9),
        ("posting_sentences", 1, -1),
        ("posting_sentences", slice(None), (1 << 31) - 1),
        ("posting_tokens", 0, -5),
        ("posting_tokens", -1, 1 << 30),
    ],
)
def test_postings_that_lead_elsewhere_are_refused(way: str, name: str, place: int | slice, value: int) -> None:
    whole = segment_of([[1, 2], [2, 3]])
    arrays: dict[str, Array] = {key: array.copy() for key, array in whole.arrays.items()}
    arrays[name][place] = value
    with pytest.raises(DatastoreDamagedError):
        SourceIndex([replace(whole, arrays=arrays)]).choose([[1, 2, 3]], 2)
    assert way


def test_a_name_that_two_segments_have_does_not_mix_them_up(way: str) -> None:
    small, large = segment_of([[3], [1, 2]]), segment_of([[4, 5]] * 9)
    large = replace(large, record=replace(large.record, stored=small.record.stored))
    earlier = SourceIndex([small, large])
    later = SourceIndex([small, large], earlier)
    for index in (earlier, later):
        assert index.choose([[1, 2]], 1).sentences.tolist() == [[1]]
        assert index.choose([[4, 5]], 1).sentences.tolist() == [[2]]
