"""Entries that say the same again, beside a loop over all pairs of them, and what a search makes of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

import knnmt.index.entries as entries_module
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.entries import Entries
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.segments.repeats import follow_repeats


def pair(source: str, target: str, number: int) -> SegmentPair:
    return SegmentPair(source, target, f"made.tsv#{number}")


def said(store: Datastore) -> dict[tuple[str, tuple[int, ...]], list[int]]:
    """The entries of each source and beginning of a target, next token included, of sentences that are not removed."""
    groups = defaultdict(list)
    first = 0
    for segment in store.segments:
        gone = set(segment.removed.tolist())
        for entry in range(segment.record.entries):
            sentence, position = (int(segment.arrays[name][entry]) for name in ("sentences", "positions"))
            if sentence not in gone:
                beginning = tuple(segment.target_tokens(sentence)[: position + 1].tolist())
                groups[segment.pair(sentence).source, beginning].append(first + entry)
        first += segment.record.entries
    return groups


def assert_said_once(store: Datastore) -> None:
    entries, groups = Entries(store), said(store)
    live = torch.zeros(entries.entries, dtype=torch.bool)
    counts = torch.ones(entries.entries)
    for mine in groups.values():
        live[mine[0]] = True
        counts[mine[0]] = len(mine)
    assert (live if entries.live is None else entries.live).tolist() == live.tolist()
    assert (torch.ones_like(counts) if entries.repeats is None else entries.repeats).tolist() == counts.tolist()


PAIRS = [
    pair("abc", "fed", 0),
    pair("abc", "fee", 1),
    pair("bcd", "fed", 2),
    pair("abc", "fed", 3),
    pair("cde", "ffe", 4),
]


def firsts_and_counts(entries: Entries) -> tuple[list[int], list[float]]:
    """Of every entry, asked for all at once and for some."""
    every, known = np.arange(entries.entries), entries.said_again
    if known is None:
        return every.tolist(), [1.0] * len(every)
    firsts, counts = known.every_first(len(every)), known.every_count(len(every))
    assert known.firsts_of(every[::-1]).tolist() == firsts[::-1].tolist()
    assert known.counts_of(every[::-1]).tolist() == counts[::-1].tolist()
    assert known.searched(len(every)).tolist() == (firsts == every).tolist()
    return firsts.tolist(), counts.tolist()


@pytest.mark.parametrize("newer", [0, 6, 1 << 16])
def test_what_repeats_is_followed_as_it_is_found(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: int
) -> None:
    monkeypatch.setattr(entries_module, "follow_repeats", partial(follow_repeats, max_newer=newer))
    chance = Random(7)
    store = Datastore.build(tmp_path / "s", PAIRS[2:3], tiny)
    followed = Entries(store)
    repeated = 0
    for number in range(40):
        act = chance.choice(["add", "add", "add", "remove", "replace", "several", "compact"])
        new = [pair(chance.choice(PAIRS).source, chance.choice(["fed", "fee", "f"]), 100 + number)]
        if act == "remove":
            store.remove(matching(origin=f"made.tsv#{chance.randrange(100, 101 + number)}"))
        elif act == "replace":
            store.replace(matching(source_text=new[0].source), new, tiny)
        elif act == "compact":
            store.compact()
        else:
            store.add(new * (3 if act == "several" else 1), tiny)
        followed, found = Entries(store, followed), Entries(store)
        assert firsts_and_counts(followed) == firsts_and_counts(found)
        assert (followed.repeats is None) == (found.repeats is None)
        repeated += found.repeats is not None
    assert 5 < repeated < 40


def test_nothing_repeats_in_most_stores(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", [PAIRS[0], PAIRS[2], PAIRS[4]], tiny)
    entries = Entries(store)
    assert entries.live is None
    assert entries.repeats is None
    assert entries.counts is None


def test_what_repeats_is_found_in_a_store_that_lives(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", PAIRS, tiny)
    assert_said_once(store)
    store.add([pair("abc", "fed", 5), pair("cde", "fed", 6)], tiny)
    assert_said_once(store)
    store.remove(lambda each: each.origin.endswith("#0"))  # the first of several: the next one is searched for
    assert_said_once(store)
    store.remove(lambda each: each.source == "abc")
    assert_said_once(store)


def test_an_open_reader_finds_the_next_when_the_first_is_removed(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", PAIRS, tiny)
    index = StoreIndex(store)
    first = said(store)["abc", tuple(store.segments[0].target_tokens(0)[:1].tolist())]
    query = torch.from_numpy(Entries(store).keys_of(torch.tensor(first[:1]).numpy())).float()
    assert index.search(query, 1)[1].tolist() == [[first[0]]]
    store.remove(lambda each: each.origin.endswith("#0"))
    assert index.refresh()
    assert index.search(query, 1)[1].tolist() == [[first[1]]]


@pytest.mark.parametrize(("old", "new"), [(10, 11), (10, 51)])
def test_at_equal_distance_shares_are_those_of_all_entries(
    tiny: TransformerEngine, tmp_path: Path, old: int, new: int
) -> None:
    """Eight neighbours would be eight of one target."""
    pairs = [pair("abc", "fed" if number < old else "bad", number) for number in range(old + new)]
    store = Datastore.build(tmp_path / "s", pairs, tiny)
    opened = OpenStore(store)
    entry = Entries(store).keys_of(torch.tensor([0]).numpy())
    found = opened.search(torch.from_numpy(entry).float(), 8)
    near = found.distances_sq[0] < opened.same_distance**2 / 9
    counts = opened.counts(found.ids, merged=False)
    assert counts is not None
    shares = Counter(dict(zip(found.tokens[0, near].tolist(), counts[0, near].tolist(), strict=True)))
    assert sorted(shares.values()) == [old, new]
