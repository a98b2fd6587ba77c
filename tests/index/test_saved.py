"""Indexes beside their store: saved, killed while being built, damaged, stale, brought up to date."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from knnmt.datastore.lock import writer_lock
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreLockedError, DatastoreVersionError, KnnmtError, SettingError
from knnmt.index.entries import Entries
from knnmt.index.kinds import KINDS, SearchSettings
from knnmt.index.saved import SavedIndex, build_index, open_saved, read_saved, update_index
from support import warm
from support.index_stores import append_keys, assert_exact, clustered, faiss_or_skip, write_store

faiss_or_skip()
QUERIES = torch.from_numpy(clustered(20, seed=9))


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return write_store(tmp_path / "store", [clustered(1500), clustered(500, seed=1)])


def files(store: Datastore) -> set[str]:
    return {path.name for path in (store.path / "indexes").iterdir()}


def file_of(saved: SavedIndex | None) -> str:
    assert saved is not None
    assert saved.stored is not None
    return saved.stored.file


def test_an_index_is_read_as_it_was_built(store: Datastore) -> None:
    assert read_saved(store) is None
    saved = build_index(store, "ivf-flat", SearchSettings(probes=500, candidates=0), seed=3)
    assert read_saved(store) == saved
    assert (saved.kind, saved.seed, saved.generation, saved.entries, saved.trained_entries) == (
        "ivf-flat", 3, 1, 2000, 2000,
    )  # fmt: skip
    assert saved.covers == tuple(record.stored.sha256 for record in store.manifest.segments)
    assert files(store) == {"lock", "index.json", file_of(saved)}
    assert_exact(open_saved(store, saved, Entries(store)).search(QUERIES, 8), store, QUERIES, 8)
    assert list(store.verify()) == []


def test_default_settings_are_the_kinds(store: Datastore) -> None:
    assert build_index(store, "rabitq").settings == KINDS["rabitq"].settings


def test_another_index_takes_the_place_of_the_first(store: Datastore) -> None:
    build_index(store, "ivf-flat")
    second = build_index(store, "rabitq")
    assert read_saved(store) == second
    assert files(store) == {"lock", "index.json", file_of(second)}
    exact = build_index(store, "exact")
    assert read_saved(store) == exact
    assert exact.stored is None
    assert files(store) == {"lock", "index.json"}
    with pytest.raises(SettingError, match="no file to open"):
        open_saved(store, exact, Entries(store))


def test_a_kind_that_does_not_exist_changes_nothing(store: Datastore) -> None:
    saved = build_index(store, "ivf-flat")
    with pytest.raises(SettingError, match="one of exact, ivfpq"):
        build_index(store, "ivf")
    assert read_saved(store) == saved
    assert files(store) == {"lock", "index.json", file_of(saved)}


def test_other_settings_and_what_is_known_of_them_leave_the_file(store: Datastore) -> None:
    saved = build_index(store, "rabitq")
    known = {"recall": 0.98, "k": 8}
    build_index(store, "rabitq", SearchSettings(probes=3, candidates=40), fidelity=known)
    again = read_saved(store)
    assert again is not None
    assert (again.fidelity, again.settings) == (known, SearchSettings(probes=3, candidates=40))
    assert again.stored == saved.stored


def test_building_holds_up_no_change_of_the_store_but_another_index(store: Datastore) -> None:
    build_index(store, "exact")
    with writer_lock(store.path / "indexes"):
        assert store.remove(lambda pair: pair.origin == "part0#0").removed_sentences == 1
        with pytest.raises(DatastoreLockedError):
            build_index(store, "ivf-flat")
    with writer_lock(store.path):
        build_index(store, "ivf-flat")


# Bringing up to date --------------------------------------------------------------------------------------------------


def test_a_small_addition_is_added_without_training_again(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_index(store, "ivf-flat", SearchSettings(500, 0), fidelity={"recall": 1.0})
    assert update_index(store) == first
    append_keys(store.path, clustered(100, seed=2))
    before = open_saved(store, first, Entries(store))._centres
    monkeypatch.setattr("knnmt.index.faiss_index.train_centres", lambda *_: pytest.fail("trained again"))
    second = update_index(store)
    assert second == read_saved(store)
    assert second is not None
    assert (second.entries, second.trained_entries, second.generation, len(second.covers)) == (2100, 2000, 2, 3)
    assert second.fidelity == {"recall": 1.0}
    assert files(store) == {"lock", "index.json", file_of(second)}
    index = open_saved(store, second, Entries(store))
    assert torch.equal(index._centres, before)
    assert_exact(index.search(QUERIES, 8), store, QUERIES, 8)


def test_many_small_additions_come_to_a_large_one(store: Datastore) -> None:
    trained = [build_index(store, "ivf-flat").trained_entries]
    for seed in range(3):
        append_keys(store.path, clustered(450, seed=10 + seed))
        saved = update_index(store)
        assert saved is not None
        trained.append(saved.trained_entries)
    assert trained == [2000, 2000, 2000, 3350]


def test_an_index_of_a_compacted_store_is_stale_and_built_anew(store: Datastore) -> None:
    settings = SearchSettings(500, 0)
    first = build_index(store, "ivf-flat", settings, seed=4, fidelity={"recall": 1.0})
    store.remove(lambda pair: pair.origin.startswith("part0#1"))
    assert first.fits(Entries(store).segment_names())
    store.compact()
    assert not first.fits(Entries(store).segment_names())
    second = update_index(store)
    assert second is not None
    assert second.fits(Entries(store).segment_names())
    assert (second.kind, second.settings, second.seed, second.fidelity) == ("ivf-flat", settings, 4, {})
    assert_exact(open_saved(store, second, Entries(store)).search(QUERIES, 8), store, QUERIES, 8)


def test_what_has_no_index_or_an_exact_one_stays_so(store: Datastore) -> None:
    assert update_index(store) is None
    assert not (store.path / "indexes").exists()
    exact = build_index(store, "exact")
    append_keys(store.path, clustered(5000, seed=2))
    assert update_index(store) == exact


# Kills and damage -----------------------------------------------------------------------------------------------------

_BUILD = """
import sys, time
from knnmt.datastore.store import Datastore
from knnmt.index import saved
store = Datastore.open(sys.argv[1])
def say(done, of):
    print(done, flush=True)
    if sys.argv[2] == "adding" and done: time.sleep(60)
if sys.argv[2] == "publishing":
    saved._publish = lambda *_: (print("written", flush=True), time.sleep(60))
saved.build_index(store, "rabitq", progress=say)
"""


@pytest.mark.parametrize(("moment", "said"), [("adding", "2000"), ("publishing", "written")])
def test_a_killed_build_leaves_the_index_before_it(store: Datastore, moment: str, said: str) -> None:
    before = build_index(store, "ivf-flat", SearchSettings(500, 0))
    process = warm.Popen([sys.executable, "-c", _BUILD, str(store.path), moment], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        while process.stdout.readline().strip() != said:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert read_saved(store) == before
    assert_exact(open_saved(store, before, Entries(store)).search(QUERIES, 8), store, QUERIES, 8)
    if moment == "publishing":
        assert len(files(store)) == 4  # with the file that was never published
    update_index(store)
    assert files(store) == {"lock", "index.json", file_of(before)}


def test_a_full_disk_leaves_the_index_before_it(store: Datastore) -> None:
    before = build_index(store, "ivf-flat")
    script = (
        "import resource, sys; from knnmt.datastore.store import Datastore; from knnmt.index.saved import build_index; "
        "from knnmt.errors import StorageError; import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = Datastore.open(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try: build_index(store, 'ivfpq')\n"
        "except StorageError as error: print(error)"
    )
    done = warm.run([sys.executable, "-c", script, str(store.path)], capture_output=True, text=True, check=True)
    assert "Published files are unchanged" in done.stdout
    assert read_saved(store) == before
    assert files(store) == {"lock", "index.json", file_of(before)}


def test_a_damaged_file_is_refused_and_building_mends_it(store: Datastore) -> None:
    saved = build_index(store, "rabitq")
    path = store.path / "indexes" / file_of(saved)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatastoreDamagedError, match=r"it was altered\. `knnmt index .*` builds it again"):
        open_saved(store, saved, Entries(store))
    path.unlink()
    with pytest.raises(DatastoreDamagedError, match=r"cannot be read: No such file.* builds it again"):
        open_saved(store, saved, Entries(store))
    open_saved(store, build_index(store, "rabitq"), Entries(store))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda text: text[:-5], "cannot be read"),
        (lambda text: text.replace('"seed": 0', '"seed": 1'), "checksum"),
        (lambda text: "[]", "something else"),
        (lambda text: json.dumps({**json.loads(text), "version": 9}), "version 9"),
    ],
)
def test_a_damaged_record_is_refused_and_building_mends_it(store: Datastore, change, error: str) -> None:  # type: ignore[no-untyped-def]
    build_index(store, "rabitq")
    path = store.path / "indexes" / "index.json"
    path.write_text(change(path.read_text()))
    with pytest.raises((DatastoreDamagedError, DatastoreVersionError), match=error) as caught:
        read_saved(store)
    assert "builds it again" in str(caught.value)
    assert isinstance(caught.value, KnnmtError)
    saved = build_index(store, "ivf-flat")
    assert read_saved(store) == saved
    assert files(store) == {"lock", "index.json", file_of(saved)}


def test_readers_that_read_while_writers_write(store: Datastore, tmp_path: Path) -> None:
    """A store index that opens at any moment opens a whole one."""
    from knnmt.index.store_index import StoreIndex

    build_index(store, "rabitq", SearchSettings(500, 500))
    script = (
        "import itertools, os, sys; from knnmt.datastore.store import Datastore\n"
        "from knnmt.index.saved import build_index\n"
        "store = Datastore.open(sys.argv[1])\n"
        "for turn in itertools.count():\n"
        "    if os.path.exists(sys.argv[2]): break\n"
        "    build_index(store, ('rabitq', 'pq4')[turn % 2], seed=turn)"
    )
    enough = tmp_path / "enough"
    process = warm.Popen([sys.executable, "-c", script, str(store.path), str(enough)])
    opened: set[str] = set()
    until = time.monotonic() + 60
    while len(opened) < 6 and process.poll() is None and time.monotonic() < until:
        index = StoreIndex(store)
        opened.add(file_of(index.saved))
        assert index.search(QUERIES, 1)[1].shape == (20, 1)
    enough.touch()
    assert process.wait() == 0
    assert len(opened) == 6
