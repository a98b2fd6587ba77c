"""Held-out queries beside brute force: whole sentences, and nothing found that has the same source text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.calibration.held_out import HeldOutQueries, forced_queries, sample
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from support.datastore_pairs import some_pairs
from support.index_stores import all_keys, clustered, live_ids, write_store

K = 5


def sources(store: Datastore) -> list[str]:
    """The source text of every entry."""
    return [
        segment.pair(int(sentence)).source for segment in store.segments for sentence in segment.arrays["sentences"]
    ]


def assert_held_out(found: SearchResult, store: Datastore, asked: list[int]) -> None:
    """Each query found the nearest live entries of other source texts. asked: the entry that each query is"""
    texts, keys, live = sources(store), all_keys(store).astype(np.float64), live_ids(store)
    for row, entry in enumerate(asked):
        others = [int(other) for other in live if texts[other] != texts[entry]]
        expected_sq = np.sort(((keys[others] - keys[entry]) ** 2).sum(1))[:K]
        there = len(expected_sq)
        ids = found[1][row, :there].tolist()
        np.testing.assert_allclose(found[0][row, :there], expected_sq, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(((keys[ids] - keys[entry]) ** 2).sum(1), expected_sq, rtol=1e-4, atol=1e-5)
        assert set(ids) <= set(others)
        assert len(set(ids)) == there
        assert found[1][row, there:].tolist() == [-1] * (K - there)
        assert found[0][row, there:].isinf().all()


def entries_asked(held_out: HeldOutQueries, store: Datastore) -> list[int]:
    """The entries whose keys and values the queries have, which must be different ones."""
    keys, values = all_keys(store), np.concatenate([segment.arrays["values"] for segment in store.segments])
    asked = [
        next(i for i in live_ids(store) if values[i] == token and np.array_equal(keys[i], query))
        for query, token in zip(held_out.queries.numpy(), held_out.tokens.tolist(), strict=True)
    ]
    assert len(set(asked)) == len(asked)
    return [int(entry) for entry in asked]


@pytest.mark.parametrize("change", [lambda _: None, lambda store: store.remove(lambda pair: pair.source[-1] in "13")])
def test_sampled_sentences_do_not_find_themselves(tmp_path: Path, change: Callable[[Datastore], object]) -> None:
    """The two segments have sentences with the same source texts."""
    store = write_store(tmp_path / "s", [clustered(240), clustered(100, seed=1)])
    change(store)
    entries = Entries(store)
    held_out = sample(entries, sentences=9)
    asked = entries_asked(held_out, store)
    assert_held_out(held_out.search(ExactIndex(entries), K), store, asked)

    numbers, owners = entries.sentence_of(np.array(asked))
    whole = sorted(set(zip(numbers.tolist(), owners.tolist(), strict=True)))
    assert len(whole) == 9
    everything = [
        entry
        for entry in live_ids(store)
        if (entries.sentence_of(np.array([entry]))[0][0], sentence(entries, entry)) in whole
    ]
    assert asked == everything  # whole sentences, their entries together and in order
    counted = [whole.index(place) for place in zip(numbers.tolist(), owners.tolist(), strict=True)]
    assert held_out.sentences.tolist() == counted


def sentence(entries: Entries, entry: int) -> int:
    return int(entries.sentence_of(np.array([entry]))[1][0])


def test_a_source_text_that_is_everywhere(tmp_path: Path) -> None:
    """All that is near is the sentence itself, many times over: the search goes on until it finds something else."""
    near = np.zeros((8, 4), np.float32)
    far = 100 + clustered(8 * 3, 4)
    parts = [near + 0.01 * number for number in range(60)]  # sentence s0 of sixty segments
    store = write_store(tmp_path / "s", [*parts, np.concatenate([near, far])], "float32")
    entries = Entries(store)
    held_out = sample(entries, sentences=1000)
    found = held_out.search(ExactIndex(entries), K)
    every = slice(None, None, 37)
    asked = list(range(len(held_out.queries)))[every]
    assert_held_out((found[0][every], found[1][every]), store, asked)
    assert (found[1][0] >= 61 * 8).all()


def test_nothing_but_itself(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [clustered(8), clustered(8, seed=1)])
    entries = Entries(store)
    found = sample(entries).search(ExactIndex(entries), 3)
    assert found[1].tolist() == [[-1] * 3] * 16
    assert found[0].isinf().all()


def test_more_queries_than_are_asked_at_once(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [clustered(600)])
    entries = Entries(store)
    held_out = sample(entries)
    assert len(held_out.queries) == 600
    assert_held_out(held_out.search(ExactIndex(entries), K), store, list(range(600)))


def test_the_sample_depends_on_the_seed_alone(tmp_path: Path) -> None:
    entries = Entries(write_store(tmp_path / "s", [clustered(400)]))
    first, again, other = (sample(entries, 5, seed).queries for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_store_without_entries(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [clustered(16)])
    store.remove(lambda _: True)
    entries = Entries(store)
    held_out = sample(entries)
    assert [tuple(each.shape) for each in held_out.search(ExactIndex(entries), 3)] == [(0, 3), (0, 3)]


# Development pairs ----------------------------------------------------------------------------------------------------


def test_development_pairs_ask_with_the_states_of_their_tokens(tiny: TransformerEngine, tmp_path: Path) -> None:
    """Which are the keys that a store of them would have; and they find everything, themselves as well."""
    pairs = some_pairs(6)
    Datastore.build(tmp_path / "s", pairs, tiny)
    store = Datastore.open(tmp_path / "s")
    entries = Entries(store)
    held_out = forced_queries(tiny, entries, pairs, lambda states: states.float())
    found = held_out.search(ExactIndex(entries), 1)
    numbers, owners = entries.sentence_of(found[1][:, 0].numpy())
    place = {
        segment.pair(s).source: (n, s)
        for n, segment in enumerate(store.segments)
        for s in range(segment.record.sentences)
    }
    expected = [place[pairs[s].source] for s in held_out.sentences.tolist()]
    assert list(zip(numbers.tolist(), owners.tolist(), strict=True)) == expected
    assert entries.values[found[1][:, 0]].tolist() == held_out.tokens.tolist()
    assert float(found[0].max()) < 1e-2  # float16 keys
    assert sorted(set(held_out.sentences.tolist())) == list(range(6))


def test_development_pairs_are_projected(tiny: TransformerEngine, tmp_path: Path) -> None:
    entries = Entries(write_store(tmp_path / "s", [clustered(16, 3)]))
    held_out = forced_queries(tiny, entries, some_pairs(2), lambda states: states[:, :3].float())
    assert held_out.queries.shape == (len(held_out.tokens), 3)
    assert held_out.search(ExactIndex(entries), K)[1].min() >= 0


def test_development_pairs_that_do_not_fit_are_left_out(tiny: TransformerEngine, tmp_path: Path) -> None:
    entries = Entries(write_store(tmp_path / "s", [clustered(16)]))
    long = SegmentPair("zu lang " * 20, "kurz", "x")
    good = some_pairs(3)
    held_out = forced_queries(tiny, entries, [good[0], long, *good[1:]], lambda states: states.float())
    assert torch.equal(held_out.queries, forced_queries(tiny, entries, good, lambda states: states.float()).queries)
    with pytest.raises(InputError, match="no pair fits the model"):
        forced_queries(tiny, entries, [long], lambda states: states.float())


def test_of_long_sentences_fewer_are_asked(tmp_path: Path) -> None:
    entries = Entries(write_store(tmp_path / "s", [clustered(800)]))  # sentences of eight
    assert len(sample(entries, 25, min_positions=240, min_sentences=20).queries) == 200  # as many as were asked for
    assert len(sample(entries, 90, min_positions=240, min_sentences=20).queries) == 240
    assert len(sample(entries, 90, min_positions=240, min_sentences=40).queries) == 320


def test_one_hears_how_far_a_search_is(tmp_path: Path) -> None:
    entries = Entries(write_store(tmp_path / "s", [clustered(800)]))
    heard: list[tuple[int, int]] = []
    held_out = sample(entries, 90)
    held_out.search(ExactIndex(entries), K, lambda done, of: heard.append((done, of)))
    assert heard == [(0, 720), (512, 720), (720, 720)]
