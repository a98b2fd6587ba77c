"""Whatever a store's files say, nothing outside of it is deleted or written, and nothing in it that is not ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from knnmt import output_files
from knnmt.compression.pca import reduce
from knnmt.datastore.building import clear_leftovers, write_store
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import read_manifest
from knnmt.datastore.publication import clear_scratch, publish_file
from knnmt.datastore.settings import write_settings
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreError, SettingError, StorageError
from support import warm
from support.crafted import alter_record
from support.datastore_pairs import some_pairs

THIRD = matching(origin="own.tsv#3")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: TransformerEngine) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(10), tiny).path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(shutil.copytree(made, tmp_path / "s"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory of somebody's, with files that bear names of ours."""
    directory = tmp_path / "outside"
    directory.mkdir()
    for name in ("precious.txt", "00009-compacted.safetensors", "flat-g1-0123456789ab.faiss", "index.json"):
        (directory / name).write_text("mine")
    return directory


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def untouched(outside: Path) -> bool:
    names = ["00009-compacted.safetensors", "flat-g1-0123456789ab.faiss", "index.json", "precious.txt"]
    return names_in(outside) == names and all((outside / name).read_text() == "mine" for name in names)


def test_a_linked_directory_of_segments_is_refused_and_nothing_in_it_deleted(store: Datastore, outside: Path) -> None:
    segments = store.path / "segments"
    for path in segments.iterdir():
        (outside / path.name).write_bytes(path.read_bytes())
    given = names_in(outside)
    segments.rename(store.path / "before")
    segments.symlink_to(outside)
    for use in (lambda: Datastore.open(store.path), lambda: store.remove(THIRD), store.compact):
        with pytest.raises(DatastoreDamagedError, match=r"found a link\. Replace the link with its target"):
            use()
    with pytest.raises(DatastoreDamagedError, match="found a link"):
        clear_leftovers(store.path, store.manifest)
    assert names_in(outside) == given


@pytest.mark.parametrize(
    "name", ["../precious.txt", "/dev/zero", "a/b", "..", ".", "", ".hidden", "a\0b", "ä" * 9, "x" * 300]
)
def test_a_manifest_can_name_nothing_but_plain_files(store: Datastore, name: str) -> None:
    record = store.manifest.segments[0]
    with pytest.raises(SettingError, match="plain name"):
        replace(record.stored, file=name)
    alter_record(store.path / "manifest.json", lambda content: content["segments"][0]["stored"].update(file=name))
    with pytest.raises(DatastoreDamagedError, match=r"segments\[0\]\.stored: expected the plain name of a file"):
        Datastore.open(store.path)


def test_only_files_with_names_of_ours_are_cleared_away(store: Datastore) -> None:
    segments = store.path / "segments"
    ours = ["00007-compacted.safetensors", "00003-0123456789abcdef.safetensors.sha256", "00001-removed-g9.safetensors"]
    scratch = [
        ".00007-compacted.safetensors.12345",
        ".00007-x.safetensors.sha256.12345-0a1b2c3d",
        ".projection.safetensors.7",
    ]
    theirs = ["notes.txt", "thesis.safetensors", ".hidden", "lost.sha256", "00007-compacted.safetensors.bak"]
    for name in (*ours, *scratch, *theirs):
        (segments / name).write_text("x")
    (segments / "00008-compacted.safetensors").mkdir()
    (store.path / ".manifest.json.123").write_text("x")
    (store.path / ".manifest.json.mine").write_text("x")
    store.remove(THIRD)
    named = {stored.file for stored in read_manifest(store.path).files()}
    assert set(names_in(segments)) == {*named, *theirs, "00008-compacted.safetensors"}
    assert not (store.path / ".manifest.json.123").exists()
    assert (store.path / ".manifest.json.mine").exists()


def test_a_link_among_the_leftovers_goes_and_what_it_leads_to_stays(store: Datastore, outside: Path) -> None:
    link = store.path / "segments" / "00009-compacted.safetensors"
    link.symlink_to(outside / "precious.txt")
    store.remove(THIRD)
    assert not link.is_symlink()
    assert untouched(outside)


def test_writing_through_links_is_refused(store: Datastore, outside: Path) -> None:
    """The lock is emptied when it is taken, and a file is filled before it is put in its place."""
    (store.path / "lock").unlink()
    (store.path / "lock").symlink_to(outside / "precious.txt")
    with pytest.raises(StorageError, match="lock"), writer_lock(store.path):
        pass
    target = store.path / "manifest.json"
    for name in (f".manifest.json.{os.getpid()}", "manifest.json.new"):
        (store.path / name).symlink_to(outside / "precious.txt")
    target.unlink()
    target.symlink_to(outside / "precious.txt")
    publish_file(target, lambda file: file.write(b"{}"))
    assert not target.is_symlink()
    assert untouched(outside)


@pytest.mark.parametrize("suffix", ["building", "making"])
def test_a_link_in_the_place_of_a_build_is_refused(
    store: Datastore, tiny: TransformerEngine, outside: Path, suffix: str
) -> None:
    new = store.path.with_name("new")
    new.with_name(f"new.{suffix}").symlink_to(outside)
    with pytest.raises(DatastoreDamagedError, match="found a link"):
        write_store(new, some_pairs(3), tiny) if suffix == "building" else reduce(store, new, 4)
    assert untouched(outside)


def test_a_failed_reduction_removes_what_it_made_and_nothing_else(store: Datastore) -> None:
    new = store.path.with_name("new")
    making = new.with_name("new.making")
    with pytest.raises(SettingError, match="dim"):
        reduce(store, new, 99)
    assert not making.exists()
    making.mkdir()
    (making / "precious.txt").write_text("mine")
    with pytest.raises(SettingError, match="dim"):
        reduce(store, new, 99)
    assert (making / "precious.txt").read_text() == "mine"
    assert not (making / "settings.json").exists()


def test_scratch_files_of_settings_that_a_kill_left_are_cleared_by_the_next_writer(store: Datastore) -> None:
    script = (
        "import sys, time; from pathlib import Path; from knnmt.datastore.publication import publish_file\n"
        "publish_file(Path(sys.argv[1]) / 'settings.json', lambda file: (print('at it', flush=True), time.sleep(60)))"
    )
    command = [sys.executable, "-c", script, str(store.path)]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at it\n"
        (scratch,) = store.path.glob(".settings.json.*")
        write_settings(store.path, a=1)
        assert scratch.exists()  # it still may be put in its place
        process.send_signal(signal.SIGKILL)
    (store.path / ".settings.json.999999999").write_text("of an earlier version")
    (store.path / ".settings.json.mine").write_text("mine")
    write_settings(store.path, b=2)
    assert [path.name for path in store.path.glob(".settings.json.*")] == [".settings.json.mine"]
    clear_scratch(store.path / "nothing" / "there.json")


# What errors say ------------------------------------------------------------------------------------------------------


def test_an_error_after_publication_says_that_the_change_was_made(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            raise PermissionError(13, "Permission denied")
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)
    (store.path / "segments" / "00009-compacted.safetensors").write_text("left over")
    with pytest.raises(StorageError, match="Published files are unchanged"):
        store.remove(THIRD)
    assert read_manifest(store.path).generation == 1
    (store.path / "segments" / "00009-compacted.safetensors").unlink()
    write = type(store.manifest).write

    def write_and_leave(manifest: object, path: Path) -> None:
        write(manifest, path)  # type: ignore[arg-type]
        (path / "segments" / "00009-compacted.safetensors").write_text("left over")

    monkeypatch.setattr(type(store.manifest), "write", write_and_leave)
    with pytest.raises(StorageError, match="The change was made: do not rerun the command") as caught:
        store.remove(THIRD)
    assert "Published files are unchanged" not in str(caught.value)
    assert read_manifest(store.path).generation == 2


def test_an_error_of_the_last_step_says_that_the_file_is_in_its_place(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = output_files.sync

    def refuse(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(output_files, "sync", refuse)
    with pytest.raises(StorageError, match="the change was written, but") as caught:
        write_settings(store.path, a=1)
    assert "Published files are unchanged" not in str(caught.value)
    assert (store.path / "settings.json").exists()
    assert isinstance(caught.value, DatastoreError)
