"""New stores appear whole or not at all, and their files are watched over."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from knnmt.compression import transforming
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.datastore import merging
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import read_manifest
from knnmt.datastore.store import Datastore, matching
from knnmt.errors import (
    DatastoreDamagedError,
    DatastoreExistsError,
    DatastoreLockedError,
    InputError,
    NotADatastoreError,
)
from support import warm
from support.copied_stores import files_of
from support.made_stores import column, made_store, plain_search, random_keys, random_values


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return made_store(tmp_path / "s", random_keys(400, 6), random_values(400), segments=10)


def make(verb: str, store: Datastore, output: Path) -> Datastore:
    if verb == "reduce":
        return reduce(store, output, 3)[0]
    return prune(store, output, plain_search(store))


def test_blocks_are_all_live_keys_in_order(store: Datastore) -> None:
    store.remove(matching(match="Satz 1"))
    ids, keys = zip(*transforming.key_blocks(store, 7), strict=True)
    assert max(map(len, ids)) == 7
    np.testing.assert_array_equal(np.concatenate(keys), column(store, "keys"))
    for entry, key in zip(np.concatenate(ids).tolist(), np.concatenate(keys), strict=True):
        found = store.entry(entry)
        assert not found.removed
        np.testing.assert_array_equal(found.key, key)


@pytest.mark.parametrize("verb", ["reduce", "prune"])
def test_segments_come_out_of_full_size(
    store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    whole = make(verb, store, tmp_path / "whole")
    assert len(whole.segments) == 1
    monkeypatch.setattr(merging, "SLICE_ENTRIES", 90)
    cut = make(verb, store, tmp_path / "cut")
    assert len(cut.segments) > 2
    assert all(segment.record.entries >= 90 for segment in cut.segments[:-1])
    assert list(cut.pairs()) == list(whole.pairs()) == list(store.pairs())
    for name in ("keys", "values", "positions"):
        np.testing.assert_array_equal(column(cut, name), column(whole, name))
    assert list(cut.verify()) == []


def test_segments_that_carry_different_arrays_are_not_joined(store: Datastore) -> None:
    parts = [dict(segment.arrays) for segment in store.segments]
    for part in parts[4:]:
        del part["source_states"]
    first, second = merging.joined(parts)
    assert (len(first["values"]), len(second["values"])) == (160, 240)
    assert first.keys() - second.keys() == {"source_states"}


# Real processes ------------------------------------------------------------------------------------------------------

# Prints and stops for good after a number of steps; blocks searched or fitted and segments written are steps.
MAKE = """
import sys, time
from pathlib import Path
from support.made_stores import plain_search
from knnmt.compression import pca, pruning, transforming
from knnmt.datastore import merging
from knnmt.datastore.store import Datastore
merging.SLICE_ENTRIES = 40
pca.key_blocks = pruning.key_blocks = lambda store, rows: transforming.key_blocks(store, 40)
steps = int(sys.argv[4])
def step(*_):
    global steps
    steps -= 1
    if not steps:
        print("here", flush=True)
        time.sleep(60)
def write_segment(*arguments):
    record = original(*arguments)
    step()
    return record
original, transforming.write_segment = transforming.write_segment, write_segment
store, output = Datastore.open(sys.argv[2]), Path(sys.argv[3])
if sys.argv[1] == "reduce":
    pca.reduce(store, output, 3, step)
else:
    pruning.prune(store, output, plain_search(store), progress=step)
"""


@pytest.mark.parametrize(("verb", "steps"), [("reduce", 3), ("reduce", 16), ("prune", 3), ("prune", 13)])
def test_a_process_killed_leaves_nothing_in_view_and_the_next_starts_over(
    store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, steps: int
) -> None:
    """The first ten steps are the blocks of a pass over all keys; then come the segments."""
    before = files_of(store.path)
    output, making = tmp_path / "new", tmp_path / "new.making"
    arguments = [verb, store.path, output, steps]
    command = [sys.executable, "-c", MAKE, *map(str, arguments)]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n", process.communicate()[1]
        with pytest.raises(DatastoreLockedError, match=rf"another process is writing to it: process {process.pid} "):
            make(verb, store, output)
        process.kill()
    written = list((making / "segments").glob("000*.safetensors"))
    assert (len(written) >= 2) == (steps > 10)
    assert not output.exists()
    with pytest.raises(NotADatastoreError, match="making it was interrupted: rerun the same `knnmt reduce` or `prune`"):
        Datastore.open(output)
    (making / "segments" / "00099-leftover.safetensors").write_bytes(b"of another run")
    (making / "manifest.json").write_bytes(b"of a run killed right before its end")
    monkeypatch.setattr(merging, "SLICE_ENTRIES", 40)
    again = make(verb, store, output)
    expected = make(verb, store, tmp_path / "whole")
    assert files_of(output) == files_of(tmp_path / "whole")
    assert again.manifest == expected.manifest
    assert not making.exists()
    assert files_of(store.path) == before


@pytest.mark.parametrize("verb", ["reduce", "prune"])
def test_an_interrupted_one_leaves_nothing_at_all(
    store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(verb, store, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert list(make(verb, store, tmp_path / "new").verify()) == []


@pytest.mark.parametrize("verb", ["reduce", "prune"])
def test_nothing_is_overwritten_and_one_process_makes_at_a_time(store: Datastore, tmp_path: Path, verb: str) -> None:
    with pytest.raises(DatastoreExistsError, match="already exists"):
        make(verb, store, store.path)
    (tmp_path / "new.making").mkdir()
    with writer_lock(tmp_path / "new.making"), pytest.raises(DatastoreLockedError):
        make(verb, store, tmp_path / "new")
    assert (tmp_path / "new.making" / "lock").exists()  # it is the other's
    store.remove(lambda _: True)
    with pytest.raises(InputError, match="has no entries left"):
        make(verb, store, tmp_path / "new")


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reduced(store: Datastore, tmp_path: Path) -> Path:
    return make("prune", make("reduce", store, tmp_path / "r"), tmp_path / "rp").path


def test_every_altered_byte_of_a_projection_is_found_by_verify(reduced: Path) -> None:
    path = reduced / "segments" / "projection.safetensors"
    whole = path.read_bytes()
    for place in range(-108, 0, 17):  # all arrays, the header not
        spoilt = bytearray(whole)
        spoilt[place] ^= 1
        path.write_bytes(spoilt)
        with pytest.raises(DatastoreDamagedError, match=r"projection\.safetensors: its bytes were altered"):
            Datastore.open(reduced, verify=True)
    path.write_bytes(whole)
    assert list(Datastore.open(reduced).verify()) == []


def test_a_projection_that_is_cut_missing_or_something_else_is_refused_on_opening(reduced: Path) -> None:
    path = reduced / "segments" / "projection.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DatastoreDamagedError, match=r"projection.*expected [\d,]+ bytes, found"):
        Datastore.open(reduced)
    path.write_bytes(whole.replace(b"components", b"componentz"))
    with pytest.raises(DatastoreDamagedError, match="arrays are missing: components"):
        Datastore.open(reduced)
    path.unlink()
    with pytest.raises(DatastoreDamagedError, match="cannot be read: No such file"):
        Datastore.open(reduced)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("components", np.zeros((6, 4), np.float32), r"components is float32 \(6, 4\), not float32 \(any number, 3\)"),
        ("explained_variance", np.zeros(4, np.float32), r"explained_variance is float32 \(4,\), not float32 \(3,\)"),
        ("mean", np.zeros((6, 1), np.float32), r"mean is float32 \(6, 1\), not float32 \(any number,\)"),
        ("mean", np.full(6, np.nan, np.float32), "mean: not all numbers are finite"),
    ],
)
def test_what_must_hold_of_a_projection_is_checked(reduced: Path, name: str, array: Array, message: str) -> None:
    """Right checksums and wrong content, as only a faulty writer could make it."""
    projection = Datastore.open(reduced).projection
    assert projection is not None
    stored = write_stored(reduced / "segments", "projection.safetensors", {**projection.arrays, name: array})
    replace(read_manifest(reduced), projection=stored).write(reduced)
    with pytest.raises(DatastoreDamagedError, match=message):
        Datastore.open(reduced, verify=True)


def test_counts_below_one_are_found_by_verify(reduced: Path) -> None:
    manifest = read_manifest(reduced)
    (record,) = manifest.segments
    arrays = dict(Datastore.open(reduced).segments[0].arrays)
    stored = write_stored(reduced / "segments", record.stored.file, {**arrays, "counts": arrays["counts"] - 1})
    replace(manifest, segments=(replace(record, stored=stored),)).write(reduced)
    with pytest.raises(DatastoreDamagedError, match="the counts do not give each entry a number of at least 1"):
        Datastore.open(reduced, verify=True)
