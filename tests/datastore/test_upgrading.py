"""Stores of earlier versions: what they lack is made as building would have made it, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crafted import alter_record, read_arrays
from crafted import stored as record_of
from datastore_pairs import some_pairs

from knnmt.compression.pruning import prune
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import write_arrays
from knnmt.datastore.manifest import MANIFEST
from knnmt.datastore.postings import POSTINGS, WORDS
from knnmt.datastore.segment import CONTEXTS, SCORES, SOURCE
from knnmt.datastore.store import Datastore, matching
from knnmt.datastore.upgrading import SUPPLIED, lacking, supplement
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.covering import SourceIndex
from knnmt.index.saved import build_index
from knnmt.index.store_index import StoreIndex

OF_A_PASS = {*SCORES, "alignment"}
SECOND = {*OF_A_PASS, *WORDS}  # what stores of version 2 may lack
FIRST = {*SECOND, *SOURCE, *POSTINGS, *CONTEXTS}  # what those of version 1 lack
OLDEST = {*FIRST, "source_hashes"}


def make_earlier(store: Path, lacks: set[str]) -> None:
    """Take arrays out of every segment of a store, as if an earlier version had written it."""

    def change(content: dict[str, Any]) -> None:
        content["version"] = 2 if lacks == SECOND else 1
        for segment in content["segments"]:
            path = store / "segments" / segment["stored"]["file"]
            write_arrays(path, {name: array for name, array in read_arrays(path).items() if name not in lacks})
            segment["stored"] |= record_of(path)
            del segment["supplement"]

    alter_record(store / MANIFEST, change)


def made(place: Path, engine: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> Datastore:
    """A store of three segments, with something removed and an accelerator that the model does not see."""
    with monkeypatch.context() as patched:
        patched.setattr("knnmt.datastore.changing.joined_with", lambda *_: 0)
        store = Datastore.build(place, [*some_pairs(7), SegmentPair("&Auf\nZu", "&Open\nClose", "own.tsv#m")], engine)
        store.add(some_pairs(4, "live", 20), engine)
        store.add(some_pairs(1, "live", 30), engine)
        store.remove(matching(origin="own.tsv#3"))
    return store


@pytest.fixture
def today(tmp_path: Path, tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> Datastore:
    return made(tmp_path / "today", tiny, monkeypatch)


def require_same(found: Datastore, expected: Datastore) -> None:
    assert list(found.pairs()) == list(expected.pairs())
    for one, other in zip(found.segments, expected.segments, strict=True):
        assert one.arrays.keys() == other.arrays.keys()
        assert one.removed.tolist() == other.removed.tolist()
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
    assert list(found.verify()) == []


@pytest.mark.parametrize("lacks", [SECOND, FIRST, OLDEST])
def test_an_upgraded_store_is_the_one_that_is_built_today(
    lacks: set[str], tmp_path: Path, tiny: TransformerEngine, today: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = made(tmp_path / "s", tiny, monkeypatch).path
    make_earlier(earlier, lacks)
    store = Datastore.open(earlier, verify=True)
    assert all(lacking(segment) for segment in store.segments)
    told: list[tuple[int, int]] = []
    assert store.upgrade(tiny, progress=lambda *done: told.append(done)) == 3
    assert told[-1] == (today.manifest.sentences, today.manifest.entries)
    require_same(store, today)
    require_same(Datastore.open(earlier), today)
    named = {stored.file for stored in store.manifest.files()}
    assert {path.name for path in (earlier / "segments").iterdir()} == named
    assert store.upgrade(tiny) == 0


def test_source_tokens_need_no_pass_and_a_later_pass_keeps_them(
    tmp_path: Path, tiny: TransformerEngine, today: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = made(tmp_path / "s", tiny, monkeypatch).path
    make_earlier(earlier, FIRST)
    store = Datastore.open(earlier)
    with monkeypatch.context() as patched:
        patched.setattr("knnmt.datastore.passing.begin_passes", None)  # none is made
        assert store.upgrade(tiny, passes=False) == 3
    assert not any(lacking(segment, passes=False) for segment in store.segments)
    assert all(set(lacking(segment)) == OF_A_PASS for segment in store.segments)
    assert list(store.verify()) == []
    assert store.upgrade(tiny) == 3
    require_same(store, today)


def test_an_upgraded_store_changes_as_any_other(
    tmp_path: Path, tiny: TransformerEngine, today: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(tmp_path / "s", tiny, monkeypatch)
    make_earlier(store.path, FIRST)
    store = Datastore.open(store.path)
    store.upgrade(tiny)
    for each in (store, today):
        each.add(some_pairs(3, "new", 40), tiny)
        each.remove(matching(origin="own.tsv#5"))
    require_same(store, today)
    for each in (store, today):
        each.compact()
        assert [record.supplement for record in each.manifest.segments] == [None]
    require_same(store, today)


def test_an_addition_to_an_earlier_store_is_whole_and_the_rest_can_be_upgraded(
    tmp_path: Path, tiny: TransformerEngine, today: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(tmp_path / "s", tiny, monkeypatch)
    make_earlier(store.path, FIRST)
    store = Datastore.open(store.path)
    for each in (store, today):
        monkeypatch.setattr("knnmt.datastore.changing.joined_with", lambda *_: 0)
        each.add(some_pairs(2, "new", 40), tiny)
    assert [bool(lacking(segment)) for segment in store.segments] == [True, True, True, False]
    assert store.upgrade(tiny) == 3
    require_same(store, today)


def test_entries_and_an_index_stay(tmp_path: Path, tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path / "s", tiny, monkeypatch)
    make_earlier(store.path, FIRST)
    store = Datastore.open(store.path)
    build_index(store, "flat")
    values = [store.entry(number).value for number in range(store.entries)]
    store.upgrade(tiny)
    assert [store.entry(number).value for number in range(store.entries)] == values
    assert StoreIndex(Datastore.open(store.path)).snapshot.signature.startswith("flat")


def test_a_pruned_store_is_upgraded_for_the_entries_that_are_left(
    tmp_path: Path, tiny: TransformerEngine, today: Datastore
) -> None:
    pruned = prune(today, tmp_path / "pruned", StoreIndex(today).search, k=3)
    assert pruned.entries < today.entries
    expected = [dict(segment.arrays) for segment in pruned.segments]
    make_earlier(pruned.path, FIRST)
    store = Datastore.open(pruned.path)
    store.upgrade(tiny)
    for segment, arrays in zip(store.segments, expected, strict=True):
        for name in SUPPLIED:
            np.testing.assert_array_equal(segment.arrays[name], arrays[name], err_msg=name)


def test_whoever_is_interrupted_goes_on_with_the_rest(
    tmp_path: Path, tiny: TransformerEngine, today: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(tmp_path / "s", tiny, monkeypatch)
    make_earlier(store.path, FIRST)
    store = Datastore.open(store.path)

    def interrupt(_sentences: int, _entries: int) -> None:
        raise KeyboardInterrupt

    for left in (2, 1, 0):
        with pytest.raises(KeyboardInterrupt):
            store.upgrade(tiny, progress=interrupt)
        assert sum(bool(lacking(segment)) for segment in Datastore.open(store.path, verify=True).segments) == left
    require_same(Datastore.open(store.path), today)


@pytest.mark.parametrize("meanwhile", [lambda store: store.compact(), lambda store: store.remove(lambda _: True)])
def test_a_change_meanwhile_holds(
    meanwhile: Callable[[Datastore], object], tmp_path: Path, tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(tmp_path / "s", tiny, monkeypatch)
    make_earlier(store.path, FIRST)
    store = Datastore.open(store.path)
    changed: list[object] = []

    def slowly(*given: Any) -> Any:
        if not changed:
            changed.append(meanwhile(Datastore.open(store.path)))
        return supplement(*given)

    monkeypatch.setattr("knnmt.datastore.store.supplement", slowly)
    store.upgrade(tiny)
    assert changed
    assert not any(lacking(segment) for segment in store.segments)
    assert list(store.verify()) == []


def test_segments_are_chosen_from_a_store_that_lacks_tokens(
    tmp_path: Path, tiny: TransformerEngine, today: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from one that has them; `knnmt.retrieval.open_store` gives the tokenizer."""
    from knnmt.retrieval.open_store import OpenStore

    earlier = made(tmp_path / "s", tiny, monkeypatch).path
    make_earlier(earlier, FIRST)
    opened = OpenStore(Datastore.open(earlier), tokenizer=tiny.tokenizer)
    sources = tiny.tokenizer.encode_sources(["Satz 5 ja", "Auf", "Satz 22"])
    expected = SourceIndex(today.segments).choose([source[:-1] for source in sources], 3)
    found = opened.snapshot.source_index.choose([source[:-1] for source in sources], 3)
    np.testing.assert_array_equal(found.sentences, expected.sentences)
    Datastore.open(earlier).add(some_pairs(1, "new", 50), tiny)
    assert opened.refresh()
    (new,) = tiny.tokenizer.encode_sources(["Satz 50 ja ja"])
    assert opened.snapshot.source_index.choose([new[:-1]], 1).sentences[0, 0] == today.manifest.sentences


def test_a_supplement_is_verified(tmp_path: Path, tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path / "s", tiny, monkeypatch)
    make_earlier(store.path, FIRST)
    store = Datastore.open(store.path)
    store.upgrade(tiny)
    record = store.manifest.segments[0].supplement
    assert record is not None
    path = store.path / "segments" / record.file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert any(record.file in problem for problem in Datastore.open(store.path).verify())
