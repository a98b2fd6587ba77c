"""Building: the right entries, the same bytes, and nothing lost however it is stopped."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import building, slices
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig, EntryProgress, write_store
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreExistsError, DatastoreLockedError, InputError, SettingError, StorageError
from knnmt.output_files import take_lock
from support import warm
from support.datastore_pairs import some_pairs


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_entries_are_the_forced_states_of_every_pair(
    tmp_path: Path, tiny: TransformerEngine, small_slices: None
) -> None:
    """The slow way: each pair alone, one pass, one row a token."""
    pairs = some_pairs(23)
    config = BuildConfig(key_dtype="float32", batch_tokens=70)
    result = write_store(tmp_path / "s", pairs, tiny, config)
    store = Datastore.open(tmp_path / "s")
    assert len(store.segments) > 3
    entry = 0
    for pair in pairs:
        source, target = tiny.tokenizer.encode_sources([pair.source, pair.target])
        state = tiny.start(tiny.encode([source]))
        expected = tiny.step(state, torch.tensor([[[230, *target[:-1]]]]))[0, 0]
        for position, token in enumerate(target):
            found = store.entry(entry)
            assert (found.id, found.value, found.position, found.pair) == (entry, token, position, pair)
            assert found.target_tokens.tolist() == target
            np.testing.assert_allclose(found.key, expected[position].numpy(), atol=1e-4)
            assert not found.removed
            entry += 1
    assert entry == store.entries == store.manifest.live_entries == result.manifest.entries
    assert list(store.pairs()) == pairs
    assert list(store.verify()) == []


def test_keys_are_float16_unless_asked_otherwise(tmp_path: Path, tiny: TransformerEngine) -> None:
    half = Datastore.build(tmp_path / "half", some_pairs(5), tiny)
    full = Datastore.build(tmp_path / "full", some_pairs(5), tiny, BuildConfig(key_dtype="float32"))
    assert half.segments[0].arrays["keys"].dtype == np.float16
    np.testing.assert_array_equal(half.segments[0].arrays["keys"], full.segments[0].arrays["keys"].astype(np.float16))
    with pytest.raises(SettingError, match="dtype must be one of float16, float32, got 'int8'"):
        BuildConfig(key_dtype="int8")


def test_the_same_text_gives_the_same_bytes(tmp_path: Path, tiny: TransformerEngine, small_slices: None) -> None:
    for name in ("a", "b"):
        write_store(tmp_path / name, some_pairs(30), tiny)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_pairs_too_long_for_the_model_are_counted(tmp_path: Path, tiny: TransformerEngine) -> None:
    pairs = [*some_pairs(3), SegmentPair("x" * 60, "y", "own.tsv#long"), SegmentPair("x", "y" * 60, "own.tsv#long2")]
    result = write_store(tmp_path / "s", pairs, tiny)
    assert result.dropped == {"longer than the model's 40 positions": 2}
    assert result.manifest.sentences == 3


def stop_after(count: int) -> EntryProgress:
    """Ctrl-C, once that many pairs are done."""

    def progress(pairs: int, entries: int) -> None:
        if pairs >= count:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_build_goes_on_from_what_is_done(
    tmp_path: Path, tiny: TransformerEngine, small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "whole", some_pairs(40), tiny)

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", some_pairs(40), tiny, progress=stop_after(25))
    assert not (tmp_path / "s").exists()
    done = len(list((tmp_path / "s.building" / "segments").glob("*.safetensors")))
    assert done >= 2
    encoded = []

    def counted(*arguments: Any) -> Callable[[], dict[str, Array]]:
        encoded.append(1)
        return slices.begin_slice(*arguments)

    monkeypatch.setattr(building, "begin_slice", counted)
    result = write_store(tmp_path / "s", some_pairs(40), tiny)
    assert result.reused == done
    assert len(encoded) == len(result.manifest.segments) - done
    assert content(tmp_path / "s") == content(tmp_path / "whole")
    assert not (tmp_path / "s.building").exists()


def test_a_finished_slice_that_was_spoilt_is_made_again(
    tmp_path: Path, tiny: TransformerEngine, small_slices: None
) -> None:
    write_store(tmp_path / "whole", some_pairs(40), tiny)
    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", some_pairs(40), tiny, progress=stop_after(25))
    victim = min((tmp_path / "s.building" / "segments").glob("*.safetensors"))
    spoilt = bytearray(victim.read_bytes())
    spoilt[-1] ^= 1
    victim.write_bytes(spoilt)
    write_store(tmp_path / "s", some_pairs(40), tiny)
    assert content(tmp_path / "s") == content(tmp_path / "whole")


def test_a_build_stopped_right_before_it_is_published_is_not_done_again(
    tmp_path: Path, tiny: TransformerEngine, small_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            write_store(tmp_path / "s", some_pairs(40), tiny)
    assert not (tmp_path / "s").exists()
    result = write_store(tmp_path / "s", some_pairs(40), tiny)
    assert result.reused == len(result.manifest.segments)
    write_store(tmp_path / "whole", some_pairs(40), tiny)
    assert content(tmp_path / "s") == content(tmp_path / "whole")


def test_a_restart_forgets_what_was_done(tmp_path: Path, tiny: TransformerEngine, small_slices: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", some_pairs(40), tiny, progress=stop_after(25))
    result = write_store(tmp_path / "s", some_pairs(40), tiny, BuildConfig(key_dtype="float32"), restart=True)
    assert result.reused == 0
    assert result.manifest.key_dtype == "float32"


def test_an_unfinished_build_with_other_settings_is_not_mixed_in(
    tmp_path: Path, tiny: TransformerEngine, small_slices: None
) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", some_pairs(40), tiny, progress=stop_after(25))
    with pytest.raises(DatastoreExistsError, match=r"other settings \(key_dtype differ\)"):
        write_store(tmp_path / "s", some_pairs(25), tiny, BuildConfig(key_dtype="float32"))


def test_what_is_in_the_way_is_not_overwritten(tmp_path: Path, tiny: TransformerEngine) -> None:
    write_store(tmp_path / "s", some_pairs(3), tiny)
    before = content(tmp_path / "s")
    with pytest.raises(DatastoreExistsError, match="already exists"):
        write_store(tmp_path / "s", some_pairs(4), tiny)
    assert content(tmp_path / "s") == before
    with pytest.raises(InputError, match="no usable pair"):
        write_store(tmp_path / "empty", [], tiny)
    with pytest.raises(InputError, match=rf"; 1 were longer than the model's {tiny.max_positions} positions"):
        write_store(tmp_path / "long", [SegmentPair("a" * 2 * tiny.max_positions, "b", "long#1")], tiny)


# Real processes ------------------------------------------------------------------------------------------------------

BUILD = """
import sys
from pathlib import Path
from support.datastore_pairs import some_pairs
from knnmt.datastore import slices
from knnmt.datastore.building import write_store
from knnmt.engine.loading import load_engine
slices.SLICE_ENTRIES = 60
engine = load_engine(Path(sys.argv[1]), device="cpu")
print("begin", flush=True)
write_store(Path(sys.argv[2]), some_pairs(200), engine, progress=lambda pairs, entries: print(pairs, flush=True))
print("built", flush=True)
"""


def start_build(checkpoint: Path, store: Path) -> warm.Popen:
    command = [sys.executable, "-c", BUILD, str(checkpoint), str(store)]
    return warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_and_resume(checkpoint: Path, place: Path, times: int, seed: int) -> None:
    """Kill builds at random moments, then let them end: the store must be as if nothing had happened."""
    generator = random.Random(seed)
    out, err = start_build(checkpoint, place / "whole").communicate()
    assert out.endswith("built\n"), err
    parts = out.count("\n") - 2
    expected = without_lock(place / "whole")
    for attempt in range(times):
        store = place / f"s{attempt}"
        for _ in range(3):
            process = start_build(checkpoint, store)
            assert process.stdout is not None
            for _ in range(generator.randint(1, parts // 2)):  # "begin", and a line after each part
                assert process.stdout.readline()
            time.sleep(generator.uniform(0, 0.005))
            process.kill()
            process.communicate()
            if store.exists():
                break  # it was faster
        else:
            out, err = start_build(checkpoint, store).communicate()
            assert out.endswith("built\n"), err
        assert list(Datastore.open(store).verify()) == []
        assert without_lock(store) == expected
        shutil.rmtree(store)


def without_lock(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(store).items() if name != "lock"}


def test_a_build_that_is_killed_leaves_no_store_or_a_whole_one(tmp_path: Path, tiny_checkpoint: Path) -> None:
    kill_and_resume(tiny_checkpoint, tmp_path, times=2, seed=5)


@pytest.mark.soak
def test_a_build_that_is_killed_many_times(tmp_path: Path, tiny_checkpoint: Path) -> None:
    kill_and_resume(tiny_checkpoint, tmp_path, times=25, seed=6)


def test_a_full_disk_is_said_and_the_build_goes_on_when_there_is_room(
    tmp_path: Path, tiny: TransformerEngine, small_slices: None
) -> None:
    write_store(tmp_path / "whole", some_pairs(40), tiny)
    largest = max(path.stat().st_size for path in (tmp_path / "whole" / "segments").iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 100, hard))
        with pytest.raises(StorageError, match=r"cannot be written: File too large.*make room.*rerun the command"):
            write_store(tmp_path / "s", some_pairs(40), tiny)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert not (tmp_path / "s").exists()
    assert not [path for path in (tmp_path / "s.building" / "segments").iterdir() if path.name.startswith(".")]
    write_store(tmp_path / "s", some_pairs(40), tiny)
    assert content(tmp_path / "s") == content(tmp_path / "whole")


@pytest.mark.soak
def test_five_million_entries_build_in_bounded_memory(tmp_path: Path) -> None:
    """With the shipped model, in a process of its own whose peak resident size is read."""
    code = """
import json, resource, sys
from pathlib import Path
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import write_store
from knnmt.engine.loading import load_engine
def pairs():
    number = 0
    while True:
        number += 1
        text = " ".join(str((number * step) % 1009) for step in range(3, 11))
        yield SegmentPair("Nummern " + text, "numbers " + text, f"made#{number}")
def enough(pairs, entries):
    if entries >= 5_000_000:
        raise KeyboardInterrupt
try:
    write_store(Path(sys.argv[1]), pairs(), load_engine(device="cpu"), progress=enough)
except KeyboardInterrupt:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "s.building")
    print(f"peak resident size: {done.stdout.strip()} MiB")
    assert int(done.stdout) < 2048


@pytest.mark.parametrize("left", [None, "00000-part.safetensors"])
def test_an_interrupt_before_the_lock_is_held_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str | None
) -> None:
    """But what an earlier build left stays, to be gone on with."""
    segments = tmp_path / "new.making" / "segments"
    if left is not None:
        segments.mkdir(parents=True)
        (segments / left).write_bytes(b"x")
    take, interrupted = take_lock, False

    def interrupt(descriptor: int) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt
        take(descriptor)

    monkeypatch.setattr("knnmt.datastore.lock.take_lock", interrupt)
    with pytest.raises(KeyboardInterrupt), building.new_store(tmp_path / "new", "making"):
        pytest.fail("the lock is not held")
    assert [path.name for path in tmp_path.rglob("*.safetensors")] == ([] if left is None else [left])
    assert (tmp_path / "new.making").exists() == (left is not None)


def test_what_another_process_has_just_begun_is_not_removed(tmp_path: Path) -> None:
    with building.new_store(tmp_path / "new", "making") as making:
        with pytest.raises(DatastoreLockedError), building.new_store(tmp_path / "new", "making"):
            pytest.fail("the lock is another's")
        assert (making / "segments").is_dir()
