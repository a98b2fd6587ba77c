"""An open store: reading, changing, snapshots, locks, and a plain Python model it must agree with."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import write_store
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreLockedError, DatastoreMismatchError, InputError, SettingError
from support import warm
from support.datastore_pairs import some_pairs


@pytest.fixture
def store(tmp_path: Path, tiny: TransformerEngine) -> Datastore:
    return Datastore.build(tmp_path / "s", some_pairs(10), tiny)


def keys_by_sentence(store: Datastore) -> dict[str, Array]:
    """origin -> keys of its live entries."""
    found: dict[str, list[Array]] = {}
    for number in range(store.entries):
        entry = store.entry(number)
        if not entry.removed:
            found.setdefault(entry.pair.origin, []).append(np.asarray(entry.key))
    return {origin: np.stack(rows) for origin, rows in found.items()}


def test_added_pairs_come_after_the_others_and_ids_hold(store: Datastore, tiny: TransformerEngine) -> None:
    before = [store.entry(number) for number in range(store.entries)]
    change = store.add(some_pairs(4, start=50), tiny)
    assert (change.added_sentences, change.removed_sentences) == (4, 0)
    assert store.manifest.generation == 2
    assert list(store.pairs()) == some_pairs(10) + some_pairs(4, start=50)
    for entry in before:
        found = store.entry(entry.id)
        assert (found.value, found.pair, found.position) == (entry.value, entry.pair, entry.position)
        np.testing.assert_array_equal(found.key, entry.key)
    assert change.added_entries == store.entries - len(before)
    assert list(store.verify()) == []


def test_what_is_added_later_has_the_keys_of_what_is_built_at_once(
    store: Datastore, tmp_path: Path, tiny: TransformerEngine
) -> None:
    store.add(some_pairs(4, start=50), tiny)
    at_once = Datastore.build(tmp_path / "once", some_pairs(10) + some_pairs(4, start=50), tiny)
    later, whole = keys_by_sentence(store), keys_by_sentence(at_once)
    assert later.keys() == whole.keys()
    for origin, keys in whole.items():
        np.testing.assert_allclose(later[origin], keys, atol=2e-3)


def test_removed_sentences_are_gone_and_ids_hold_until_compacted(store: Datastore) -> None:
    entries = store.entries
    change = store.remove(matching(origin="own.tsv#3"))
    assert (change.removed_sentences, change.removed_entries) == (1, len("line 3 yes yes yes") + 1)
    assert store.entries == entries
    assert store.manifest.live_entries == entries - change.removed_entries
    assert [pair.origin for pair in store.pairs()] == [f"own.tsv#{n}" for n in range(10) if n != 3]
    gone = [number for number in range(entries) if store.entry(number).removed]
    assert len(gone) == change.removed_entries
    assert {store.entry(number).pair.origin for number in gone} == {"own.tsv#3"}
    assert list(store.verify()) == []
    left = keys_by_sentence(store)
    assert store.compact().removed_entries == change.removed_entries
    assert store.entries == store.manifest.live_entries == entries - change.removed_entries
    assert list(store.verify()) == []
    for origin, keys in keys_by_sentence(store).items():
        np.testing.assert_array_equal(keys, left[origin])
    assert len(list((store.path / "segments").iterdir())) == 1


def test_every_way_to_choose_what_goes(store: Datastore, tiny: TransformerEngine) -> None:
    store.add(some_pairs(2, file="other.tmx"), tiny)
    assert store.remove(matching(source_text="Satz 4 ")).removed_sentences == 1
    assert store.remove(matching(match=r"^line [12]\b")).removed_sentences == 3  # both files have a line 1
    assert store.remove(matching(match="Satz 5", origin="other.tmx")).removed_sentences == 0
    assert store.remove(matching(origin="other.tmx")).removed_sentences == 1
    assert store.remove(matching(origin="own.tsv#9")).removed_sentences == 1
    assert [pair.origin for pair in store.pairs()] == [f"own.tsv#{n}" for n in (0, 3, 5, 6, 7, 8)]
    generation = store.manifest.generation
    assert store.remove(matching(origin="own.tsv#9")).removed_sentences == 0
    assert store.manifest.generation == generation  # nothing changed, so nothing was published
    with pytest.raises(SettingError, match="not a regular expression"):
        matching(match="(")
    with pytest.raises(SettingError, match="give an origin, a source text"):
        matching()


def test_a_corrected_unit_takes_its_own_place_in_one_publication(store: Datastore, tiny: TransformerEngine) -> None:
    corrected = SegmentPair("Satz 3", "sentence three", "own.tsv#3")
    change = store.replace(matching(origin="own.tsv#3"), [corrected], tiny)
    assert (change.added_sentences, change.removed_sentences) == (1, 1)
    assert store.manifest.generation == 2
    found = {pair.origin: pair for pair in store.pairs()}
    assert len(found) == 10
    assert found["own.tsv#3"] == corrected


def test_a_reader_keeps_its_snapshot_until_it_refreshes(store: Datastore, tiny: TransformerEngine) -> None:
    reader = Datastore.open(store.path)
    before = keys_by_sentence(reader)
    store.add(some_pairs(3, start=70), tiny)
    store.remove(matching(origin="own.tsv#1"))
    store.compact()  # the files that the reader looks at are gone from the directory
    assert keys_by_sentence(reader).keys() == before.keys()
    for origin, keys in keys_by_sentence(reader).items():
        np.testing.assert_array_equal(keys, before[origin])
    assert reader.refresh()
    assert list(reader.pairs()) == list(store.pairs())
    assert not reader.refresh()


def test_adding_one_pair_writes_as_much_to_a_large_store_as_to_a_small_one(
    tmp_path: Path, tiny: TransformerEngine
) -> None:
    written = []
    for size in (5, 800):
        store = Datastore.build(tmp_path / str(size), some_pairs(size), tiny)
        before = {path.name: path.stat().st_mtime_ns for path in (store.path / "segments").iterdir()}
        store.add(some_pairs(1, start=9_000), tiny)
        new = [path for path in (store.path / "segments").iterdir() if path.name not in before]
        assert all((store.path / "segments" / name).stat().st_mtime_ns == time for name, time in before.items())
        written.append(sum(path.stat().st_size for path in new))
    assert written[0] == written[1]


def test_an_add_that_fails_leaves_no_files_behind(store: Datastore, tiny: TransformerEngine) -> None:
    before = {path.name for path in (store.path / "segments").iterdir()}
    odd = SegmentPair("ja", "\ud800", "own.tsv#odd")
    with pytest.raises(InputError, match=r"own\.tsv#odd: expected text, found half of a surrogate pair"):
        store.add([*some_pairs(5, start=40), odd], tiny)

    def stop(pairs: int, entries: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(some_pairs(5, start=40), tiny, progress=stop)
    assert {path.name for path in (store.path / "segments").iterdir()} == before
    assert list(Datastore.open(store.path, verify=True).pairs()) == some_pairs(10)


def test_keys_computed_otherwise_are_not_mixed_in(store: Datastore, tiny_checkpoint: Path) -> None:
    half = load_engine(tiny_checkpoint, device="cpu", dtype="bfloat16")
    with pytest.raises(SettingError, match=r"computed in float32; this engine computes in bfloat16\. Load"):
        store.add(some_pairs(1, start=40), half)


def test_a_store_of_very_many_small_additions_opens_with_few_files(store: Datastore, tiny: TransformerEngine) -> None:
    for number in range(60):
        store.add(some_pairs(1, start=100 + number), tiny)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 8, hard))
    try:
        assert len(list(Datastore.open(store.path).pairs())) == 70
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_verify_looks_at_the_snapshot_even_after_a_compaction(store: Datastore) -> None:
    reader = Datastore.open(store.path)
    store.remove(matching(origin="own.tsv#1"))
    store.compact()
    assert list(reader.verify()) == []


def test_another_model_is_refused_and_the_right_one_taken(store: Datastore, tiny: TransformerEngine) -> None:
    Datastore.open(store.path, engine=tiny)
    shipped = load_engine(device="cpu")
    with pytest.raises(DatastoreMismatchError, match=r"the model of 'de-en' differs.*build the store again"):
        Datastore.open(store.path, engine=shipped)
    with pytest.raises(DatastoreMismatchError):
        store.add(some_pairs(1), shipped)


def test_another_tokenizer_is_refused(store: Datastore, tiny_checkpoint: Path, tmp_path: Path) -> None:
    import shutil

    other = Path(shutil.copytree(tiny_checkpoint, tmp_path / "other"))
    tokenizer = other / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"version": "1.0"', '"version":  "1.0"'))
    with pytest.raises(DatastoreMismatchError, match="the tokenizer of"):
        Datastore.open(store.path, engine=load_engine(other, device="cpu"))


def test_an_entry_that_does_not_exist_is_said(store: Datastore) -> None:
    with pytest.raises(SettingError, match=rf"entry {store.entries} does not exist; the store has entries 0 to"):
        store.entry(store.entries)


# Writers -------------------------------------------------------------------------------------------------------------


HOLDING = """
import sys, time
from pathlib import Path
from knnmt.datastore.lock import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_writers_exclude_each_other_and_a_dead_one_does_not(store: Datastore, tiny: TransformerEngine) -> None:
    command = [sys.executable, "-c", HOLDING, str(store.path)]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DatastoreLockedError, match=rf"another process is writing to it: process {other.pid} on "):
            store.add(some_pairs(1, start=30), tiny)
        assert list(Datastore.open(store.path).pairs()) == some_pairs(10)  # readers are not affected
        other.kill()
    assert store.add(some_pairs(1, start=30), tiny).added_sentences == 1


CHANGES = """
import sys, itertools
from pathlib import Path
from support.datastore_pairs import some_pairs
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.loading import load_engine
engine = load_engine(Path(sys.argv[1]), device="cpu")
store = Datastore.open(Path(sys.argv[2]))
print("begin", flush=True)
for number in itertools.count():
    store.add(some_pairs(1, file="live", start=number), engine)
    store.replace(matching(origin=f"live#{number}"), some_pairs(1, file="new", start=number), engine)
    if number % 7 == 6:
        store.compact()
"""


def test_a_writer_that_is_killed_leaves_the_old_state_or_the_new_one(store: Datastore, tiny_checkpoint: Path) -> None:
    command = [sys.executable, "-c", CHANGES, str(tiny_checkpoint), str(store.path)]
    for attempt in range(4):
        with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begin\n"
            deadline = time.monotonic() + 0.2 + 0.13 * attempt
            while time.monotonic() < deadline:
                assert list(Datastore.open(store.path).pairs())[:10] == some_pairs(10)  # whole at every moment
            writer.kill()
        reopened = Datastore.open(store.path)
        assert list(reopened.verify()) == []
        pairs = list(reopened.pairs())
        assert pairs[:10] == some_pairs(10)
        assert len([pair for pair in pairs if pair.origin.startswith("live")]) <= 1  # an add whose replace did not come
        reopened.remove(lambda pair: not pair.origin.startswith("own"))


# A plain model of the store -------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """Adds, removals, replacements, refreshes and compactions in any order, beside a list of pairs."""

    engine: TransformerEngine
    place: Path
    runs = 0

    @initialize(count=st.integers(1, 6))
    def begin(self, count: int) -> None:
        StoreMachine.runs += 1
        self.path = self.place / f"store-{StoreMachine.runs}"
        self.expected = some_pairs(count)
        write_store(self.path, self.expected, self.engine)
        self.store = Datastore.open(self.path)
        self.reader = Datastore.open(self.path)
        self.reader_expected = list(self.expected)
        self.next = 100

    @rule(count=st.integers(1, 3), file=st.sampled_from(["own.tsv", "b.tmx"]))
    def add(self, count: int, file: str) -> None:
        pairs = some_pairs(count, file=file, start=self.next)
        self.next += count
        assert self.store.add(pairs, self.engine).added_sentences == count
        self.expected = self.expected + pairs

    @rule(number=st.integers(0, 110))
    def remove(self, number: int) -> None:
        chosen = matching(match=rf"\bline {number}\b")
        left = [pair for pair in self.expected if not chosen(pair)]
        assert self.store.remove(chosen).removed_sentences == len(self.expected) - len(left)
        self.expected = left

    @rule(number=st.integers(0, 110))
    def replace(self, number: int) -> None:
        chosen = matching(origin=f"own.tsv#{number}")
        new = [SegmentPair("neu", f"new {number}", f"own.tsv#{number}")]
        self.store.replace(chosen, new, self.engine)
        self.expected = [pair for pair in self.expected if not chosen(pair)] + new

    @rule()
    def compact(self) -> None:
        self.store.compact()
        assert self.store.entries == self.store.manifest.live_entries

    @rule()
    def refresh(self) -> None:
        self.reader.refresh()
        self.reader_expected = list(self.expected)

    @rule()
    def reopen(self) -> None:
        self.store = Datastore.open(self.path, engine=self.engine, verify=True)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        assert list(self.store.pairs()) == self.expected
        assert list(self.reader.pairs()) == self.reader_expected
        tokens = sum(len(pair.target) + 1 for pair in self.expected)
        assert self.store.manifest.live_entries == tokens
        live = [segment.arrays["values"][segment.live_entries()].tolist() for segment in self.store.segments]
        encoded = self.engine.tokenizer.encode_targets([pair.target for pair in self.expected])
        assert [value for values in live for value in values] == [token for target in encoded for token in target]


def test_a_store_agrees_with_a_list_of_pairs_whatever_happens(tmp_path: Path, tiny: TransformerEngine) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Machine", (StoreMachine,), {"engine": tiny, "place": tmp_path})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=12, deadline=None))
