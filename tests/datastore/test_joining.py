"""Small additions are joined as they come: nothing that a reader sees changes, and there are few segments."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import changing, joining
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.joining import Shared, same_beginning
from knnmt.datastore.merging import join
from knnmt.datastore.postings import POSTINGS, WORDS
from knnmt.datastore.segment import Segment
from knnmt.datastore.slices import write_segment
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.entries import Entries
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import KINDS
from knnmt.index.saved import build_index, read_saved, save_index
from knnmt.index.store_index import StoreIndex
from support import warm
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip
from support.whole_segments import arrays_of_sources

FAST = BuildConfig(for_fast=True)


@pytest.fixture
def unjoined(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has additions stay segments of their own until it is called."""
    monkeypatch.setattr(changing, "joined_with", lambda *_: 0)
    return monkeypatch.undo


def changes(store: Datastore, engine: TransformerEngine) -> None:
    """Additions of one pair and of several, corrections and removals."""
    for number in range(24):
        store.add(some_pairs(1 + 3 * (number % 5 == 0), "live", 10 * number), engine)
        if number % 3 == 0:
            context = "" if number % 2 else f"dialog {number}"
            better = [SegmentPair("neu", f"better {number}", f"better#{number}", context)]
            store.replace(matching(origin=f"live#{10 * number - 20}"), better, engine)
        if number % 7 == 0:
            store.remove(matching(match=rf"better {number - 3}\b"))


def everything(store: Datastore) -> dict[str, list[Any]]:
    """All that a store holds, by entry and by sentence, whatever its segments."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for segment in store.segments:
        arrays, sentences = dict(segment.arrays), range(segment.record.sentences)
        found["pairs"] += [segment.pair(sentence) for sentence in sentences]
        found["removed"] += [sentence in segment.removed for sentence in sentences]
        found["sentences"] += [segment.pair(sentence) for sentence in arrays.pop("sentences").tolist()]
        for offsets, name in (("target_offsets", "target_tokens"), ("source_offsets", "source_tokens")):
            if offsets in arrays:
                found[name] += [part.tolist() for part in np.split(arrays.pop(name), arrays.pop(offsets)[1:-1])]
        words = np.repeat(arrays["word_tokens"], np.diff(arrays["word_offsets"]))
        found["words"] += [sorted(words[arrays["word_sentences"] == sentence].tolist()) for sentence in sentences]
        # Of postings `verify` knows what they must be.
        for name in arrays.keys() - {"texts", "text_offsets", *POSTINGS, *WORDS}:
            found[name] += arrays[name].tolist()
    return found


@pytest.mark.parametrize("config", [BuildConfig(), FAST])
def test_joined_segments_hold_what_single_ones_would(
    config: BuildConfig, tiny: TransformerEngine, tmp_path: Path, unjoined: Callable[[], None]
) -> None:
    apart = Datastore.build(tmp_path / "apart", some_pairs(5), tiny, config)
    changes(apart, tiny)
    unjoined()
    store = Datastore.build(tmp_path / "s", some_pairs(5), tiny, config)
    changes(store, tiny)
    assert len(apart.segments) == 33
    assert len(store.segments) < 8
    assert everything(store) == everything(apart)
    assert ("source_states" in store.segments[-1].arrays) == config.for_fast
    assert list(store.verify()) == []
    assert (store.manifest.live_sentences, store.manifest.live_entries) == (
        apart.manifest.live_sentences,
        apart.manifest.live_entries,
    )
    assert [store.entry(n).pair for n in range(0, store.entries, 7)] == [
        apart.entry(n).pair for n in range(0, apart.entries, 7)
    ]
    named = {stored.file for stored in store.manifest.files()}
    assert {path.name for path in (store.path / "segments").iterdir()} == named


def test_counts_of_changes_are_those_of_the_change(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(3), tiny)
    for number in range(9):
        change = store.add(some_pairs(1, "live", 10 * number), tiny)
        assert (change.added_sentences, change.removed_sentences) == (1, 0)
        assert change.added_entries == len(some_pairs(1, "live", 10 * number)[0].target) + 1
    gone = store.replace(matching(origin="live#40"), some_pairs(2, "new"), tiny)
    assert (gone.added_sentences, gone.removed_sentences, gone.removed_entries) == (2, 1, len("line 40") + 1)


@pytest.mark.soak
def test_segments_stay_few_and_each_is_seldom_written_again(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MAX_JOINED_ENTRIES", 1000)
    written: list[int] = []

    def noted(directory: Path, name: str, arrays: dict[str, Array]) -> Any:
        written.append(len(arrays["values"]))
        return write_segment(directory, name, arrays)

    monkeypatch.setattr(changing, "write_segment", noted)
    store = Datastore.build(tmp_path / "s", some_pairs(1), tiny)
    for number in range(250):
        store.add([SegmentPair(f"Satz {number}", "nine more", f"live#{number}")], tiny)
        sizes = [segment.record.entries for segment in store.segments]
        assert max(sizes) <= 1000
        assert all(one > 2 * other or one + other > 1000 for one, other in pairwise(sizes))
    assert len(store.segments) < 12
    assert sum(written) / store.entries < 7  # how often an entry was written


def test_what_an_index_covers_is_not_joined(tiny: TransformerEngine, tmp_path: Path) -> None:
    faiss_or_skip()
    store = Datastore.build(tmp_path / "s", some_pairs(3), tiny)
    for number in range(5):
        store.add(some_pairs(1, "live", number), tiny)
    build_index(store, "flat")
    covered = store.manifest.segments
    for number in range(20, 30):
        store.add(some_pairs(1, "live", number), tiny)
        saved = read_saved(store)
        assert saved is not None
        assert saved.fits([record.stored.sha256 for record in store.manifest.segments])
        assert store.manifest.segments[: len(covered)] == covered
    assert len(store.segments) < len(covered) + 5
    store.remove(matching(origin="own.tsv#0"))
    store.compact()  # now the index is of another state, and covers nothing
    for number in range(40, 50):
        store.add(some_pairs(1, "live", number), tiny)
    assert len(store.segments) < 5


@pytest.mark.parametrize("record", ["{", '{"format": "knnmt index"}', '{"covers": 7}', "[]"])
def test_beside_an_index_that_nobody_understands_nothing_is_joined(
    record: str, tiny: TransformerEngine, tmp_path: Path
) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(1), tiny)
    (store.path / "indexes").mkdir()
    (store.path / "indexes" / "index.json").write_text(record)
    store.add(some_pairs(2, "live"), tiny)
    assert len(store.segments) == 2


@pytest.mark.parametrize("turn", ["before it is saved", "while it is saved"])
def test_an_index_made_while_segments_are_joined_fits(
    turn: str, tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faiss_or_skip()
    store = Datastore.build(tmp_path / "s", some_pairs(20), tiny)
    for number in range(5):
        store.add(some_pairs(1, "live", 100 + number), tiny)
    index = FaissIndex.train_and_add(Entries(Datastore.open(store.path)), KINDS["flat"])

    def join_all() -> None:
        before = len(store.segments)
        store.add(some_pairs(30, "many", 300), tiny)
        assert len(store.segments) < before

    write = FaissIndex.write

    def written(index: FaissIndex, path: Path) -> str:
        monkeypatch.undo()
        join_all()
        return write(index, path)

    if turn == "before it is saved":
        join_all()
    else:
        monkeypatch.setattr(FaissIndex, "write", written)
    saved = save_index(Datastore.open(store.path), index, "flat", {})
    assert saved.entries == store.entries
    assert saved.generation == store.manifest.generation
    searched = StoreIndex(Datastore.open(store.path))
    assert searched.description.startswith("flat")
    keys = np.concatenate([segment.arrays["keys"] for segment in store.segments]).astype(np.float32)
    distances_sq, ids = searched.search(torch.from_numpy(keys[::9]), 1)
    assert float(distances_sq.max()) < 1e-5
    np.testing.assert_array_equal(keys[ids[:, 0]], keys[::9])


def test_an_index_of_a_store_that_was_compacted_meanwhile_is_of_an_earlier_state(
    tiny: TransformerEngine, tmp_path: Path
) -> None:
    faiss_or_skip()
    store = Datastore.build(tmp_path / "s", some_pairs(20), tiny)
    index = FaissIndex.train_and_add(Entries(Datastore.open(store.path)), KINDS["flat"])
    store.remove(matching(origin="own.tsv#0"))
    store.compact()
    saved = save_index(store, index, "flat", {})
    assert saved.entries > store.entries
    assert StoreIndex(store).snapshot.stale


# Readers --------------------------------------------------------------------------------------------------------------


def test_readers_keep_what_they_have_and_know_it_again(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(4), tiny)
    readers = [Datastore.open(store.path)]
    for number in range(40):
        before = everything(readers[-1])
        store.add(some_pairs(1, "live", number), tiny)
        assert everything(readers[-1]) == before
        readers.append(Datastore.open(store.path))
    for reader in readers:
        whole = Shared(len(reader.segments), reader.manifest.sentences, reader.entries)
        assert same_beginning(reader.segments, store.segments) == whole


def test_what_differs_is_not_taken_for_the_same(tiny: TransformerEngine, tmp_path: Path) -> None:
    def grown(name: str, *texts: str) -> list[Segment]:
        store = Datastore.build(tmp_path / name, some_pairs(8), tiny)
        for number, text in enumerate(texts):
            store.add([SegmentPair("Satz", text, f"live#{number}")], tiny)
        return store.segments

    some = grown("some", "one", "two", "three", "four")
    assert same_beginning(some, grown("same", "one", "two", "three", "four", "five")).segments == len(some)
    other = same_beginning(some, grown("other", "one", "TWO", "three", "four", "five"))
    assert other.sentences < sum(segment.record.sentences for segment in some)
    assert other.entries == sum(segment.record.entries for segment in some[: other.segments])
    fewer = grown("fewer", "one")
    assert same_beginning(some, fewer).entries <= sum(segment.record.entries for segment in fewer)
    assert same_beginning(some, []) == same_beginning([], some) == Shared(0, 0, 0)


def test_counts_of_pruned_entries_are_joined() -> None:
    sides = [arrays_of_sources([text], [[1, 2]]) for text in ("eins", "zwei")]
    parts = [
        {"target_offsets": np.array([0, 2]), "sentences": np.zeros(2, np.int32), "counts": np.array([3, 1], np.int32)},
        {"target_offsets": np.array([0, 1]), "sentences": np.zeros(1, np.int32), "counts": np.array([2], np.int32)},
    ]
    joined = join([{**side, **part} for side, part in zip(sides, parts, strict=True)])
    assert joined["counts"].tolist() == [3, 1, 2]
    assert joined["sentences"].tolist() == [0, 0, 1]
    assert joined["target_offsets"].tolist() == [0, 2, 3]
    assert joined["posting_sentences"].tolist() == [0, 1, 0, 1]


# Kills ----------------------------------------------------------------------------------------------------------------

KILLED = """
import os, shutil, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from support.datastore_pairs import some_pairs
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.loading import load_engine
engine = load_engine(Path(sys.argv[1]), device="cpu")
place = Path(sys.argv[2])
store = Datastore.build(place / "s", some_pairs(4), engine)
for number in range(6):
    store.add(some_pairs(1, "live", number), engine)
store.remove(matching(origin="live#5"))
old, calls = list(store.pairs()), 0
segments = len(store.segments)


def change(store):
    store.replace(matching(origin="live#4"), some_pairs(2, "new"), engine)


def dying(function, last):
    def call(*given, **named):
        global calls
        calls += 1
        if calls == last:
            os._exit(9)
        return function(*given, **named)
    return call


for last in range(1, 1000, int(sys.argv[3])):
    copy = Path(shutil.copytree(place / "s", place / f"s{last}"))
    child = os.fork()
    if child == 0:
        for name in ("open", "fsync", "replace", "rename", "unlink", "ftruncate"):
            setattr(os, name, dying(getattr(os, name), last))
        change(Datastore.open(copy))
        os._exit(0)
    died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = Datastore.open(copy, verify=True)
    pairs = list(found.pairs())
    new = [pair for pair in old if pair.origin != "live#4"] + some_pairs(2, "new")
    assert pairs in (old, new), (last, pairs)
    change(found)  # whoever comes next is not hindered
    assert list(found.pairs())[-2:] == some_pairs(2, "new")
    named = {stored.file for stored in found.manifest.files()}
    assert {path.name for path in (copy / "segments").iterdir()} == named
    print("new" if pairs == new else "old", len(found.segments), flush=True)
    if died == 0:
        break
"""


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_any_file_call_it_leaves_the_old_state_or_the_new_one(
    tiny_checkpoint: Path, tmp_path: Path, every: int
) -> None:
    given = [tiny_checkpoint, tmp_path, every]
    command = [sys.executable, "-c", KILLED, *map(str, given)]
    ran = warm.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    states = [line.split()[0] for line in ran.stdout.splitlines()]
    assert len(states) > 12 // every
    assert states == sorted(states, reverse=True)  # old ones, then new ones
    assert {"old", "new"} == set(states)
