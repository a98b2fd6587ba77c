"""Stores copied to storage and back: the same files, gone on with, nothing trusted. Storage is memory, or a disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt import copy_store
from knnmt.cli import app
from knnmt.compression.pca import reduce
from knnmt.datastore import slices
from knnmt.datastore.manifest import checksum
from knnmt.datastore.storage import Storage, is_url
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import (
    DatastoreDamagedError,
    DatastoreExistsError,
    MissingDependencyError,
    NotADatastoreError,
    SettingError,
    StorageError,
)
from support.copied_stores import files_of, store_with_index
from support.datastore_pairs import some_pairs

fsspec = pytest.importorskip("fsspec")
URL = "memory://stores/projekt"


@pytest.fixture
def memory() -> Iterator[dict[str, Any]]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files.store
    files.store.clear()


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slices, "SLICE_ENTRIES", 60)
        return store_with_index(tmp_path_factory.mktemp("made") / "made.store", tiny, "own.faiss", b"hello")


@pytest.fixture
def store(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Several segments, one with a removal, with settings and an index."""
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)
    return shutil.copytree(made, tmp_path / "made.store")


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_store_comes_back_as_it_went(store: Path, tmp_path: Path, memory: dict[str, Any], kind: str) -> None:
    url = URL if kind == "memory" else f"file://{tmp_path}/storage/projekt"
    heard: list[tuple[int, int]] = []
    copy_store(store, url, lambda *done: heard.append(done))
    copy_store(url, tmp_path / "back.store", lambda *done: heard.append(done))
    assert files_of(tmp_path / "back.store") == files_of(store)
    assert Datastore.open(tmp_path / "back.store", verify=True).entries
    half = len(heard) // 2
    assert heard[:half] == heard[half:] == sorted(heard[:half])
    assert heard[-1][0] == heard[-1][1] == sum(len(each) for each in files_of(store / "segments").values()) + 5
    copy_store(store, url)  # once more changes nothing


def test_a_projection_goes_along(tiny: TransformerEngine, tmp_path: Path, memory: dict[str, Any]) -> None:
    made = Datastore.build(tmp_path / "whole", some_pairs(30), tiny)
    reduce(made, tmp_path / "reduced", 8)
    copy_store(tmp_path / "reduced", URL)
    copy_store(URL, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(tmp_path / "reduced")


def dying_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let so many calls of `Storage` through that put or fetch a file, and then none."""
    names: list[str] = []
    for each in ("_checked", "write"):
        real = getattr(Storage, each)

        def counted(self: Storage, *given: Any, real: Callable[..., None] = real) -> None:
            if len(names) >= writes:
                raise KeyboardInterrupt
            real(self, *given)
            names.append(str(given[0] if isinstance(given[0], str) else given[2]))

        monkeypatch.setattr(Storage, each, counted)
    return names


def test_killed_at_any_moment_it_goes_on(
    store: Path, tmp_path: Path, memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in ((store, URL), (URL, tmp_path / "back")):
        done: list[str] = []
        for budget in range(1, 40):
            with monkeypatch.context() as patched:
                names = dying_after(budget, patched)
                try:
                    copy_store(*given)
                except KeyboardInterrupt:
                    done += names
                else:
                    done += names
                    break
            assert not (tmp_path / "back").exists()
            if given[1] == URL:
                with pytest.raises(NotADatastoreError, match="If one is being copied there, wait"):
                    copy_store(URL, tmp_path / "early")
        assert budget > 2
        of_segments = [name for name in done if name.startswith("segments/")]
        assert len(of_segments) == len(set(of_segments)) >= 5  # none was sent twice
    assert files_of(tmp_path / "back") == files_of(store)


def test_what_is_there_is_not_sent_again(store: Path, memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    copy_store(store, URL)
    place = URL.removeprefix("memory:/")
    del memory[f"{place}/manifest.json"]
    [one, *_] = [name for name in memory if name.endswith(".safetensors")]
    memory[one].truncate(10)  # not what its mark says
    sent: list[str] = []
    opened = fsspec.filesystem("memory").open.__func__

    def watched(self: Any, path: str, mode: str = "rb", **more: Any) -> Any:
        if mode == "wb":
            sent.append(path)
        return opened(self, path, mode, **more)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "open", watched)
    copy_store(store, URL)
    assert [path for path in sent if path.endswith(".safetensors")] == [one]


def rewritten(memory: dict[str, Any], name: str, content: bytes) -> None:
    fsspec.filesystem("memory").pipe_file(f"{URL.removeprefix('memory:/')}/{name}", content)


@pytest.mark.parametrize("harm", ["altered", "longer", "shorter", "gone"])
def test_altered_files_are_refused(store: Path, tmp_path: Path, memory: dict[str, Any], harm: str) -> None:
    copy_store(store, URL)
    name = sorted(name for name in memory if name.endswith(".safetensors"))[1]
    content = fsspec.filesystem("memory").cat_file(name)
    if harm == "gone":
        del memory[name]
    else:
        changed = {"altered": content[:-1] + b"x", "longer": content + b"x", "shorter": content[:-1]}[harm]
        fsspec.filesystem("memory").pipe_file(name, changed)
    with pytest.raises(DatastoreDamagedError, match=r"differs from what its store records: .*Copy it again"):
        copy_store(URL, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not list((tmp_path / "back.copying").rglob(Path(name).name))
    fsspec.filesystem("memory").pipe_file(name, content)
    copy_store(URL, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(store)


def test_crafted_manifests_lead_nowhere_else(store: Path, tmp_path: Path, memory: dict[str, Any]) -> None:
    copy_store(store, URL)
    manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
    del manifest["checksum"]
    manifest["segments"][0]["stored"]["file"] = "../../../outside"
    rewritten(memory, "manifest.json", json.dumps({**manifest, "checksum": checksum(manifest)}).encode())
    with pytest.raises(DatastoreDamagedError, match="expected the plain name of a file"):
        copy_store(URL, tmp_path / "back")
    rewritten(memory, "manifest.json", b"[" * 100_000)
    with pytest.raises(DatastoreDamagedError, match="not valid JSON"):
        copy_store(URL, tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.store"]


def test_an_index_that_leads_elsewhere_stays_behind(store: Path, tmp_path: Path, memory: dict[str, Any]) -> None:
    copy_store(store, URL)
    bad = {"file": "../../settings.json", "bytes": 8, "sha256": "0" * 64}
    rewritten(memory, "indexes/index.json", json.dumps({"stored": bad}).encode())
    copy_store(URL, tmp_path / "back")
    assert not list((tmp_path / "back" / "indexes").glob("*.faiss"))


def test_a_store_that_is_larger_than_the_disk_is_refused_first(
    store: Path, tmp_path: Path, memory: dict[str, Any]
) -> None:
    copy_store(store, URL)
    manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))
    del manifest["checksum"]
    manifest["segments"][1]["stored"]["bytes"] = 1 << 60
    rewritten(memory, "manifest.json", json.dumps({**manifest, "checksum": checksum(manifest)}).encode())
    with pytest.raises(StorageError, match=r"bytes are to be copied, but the disk has [0-9,]+ bytes left\. Make room"):
        copy_store(URL, tmp_path / "back")
    assert not list((tmp_path / "back.copying" / "segments").glob("*.safetensors"))


def test_a_local_file_that_was_altered_is_not_published(store: Path, memory: dict[str, Any]) -> None:
    [one, *_] = sorted((store / "segments").glob("*.safetensors"))
    one.write_bytes(one.read_bytes()[:-1] + b"x")
    with pytest.raises(DatastoreDamagedError, match=r"`knnmt verify` lists all problems\. Nothing was published"):
        copy_store(store, URL)
    assert not [name for name in memory if name.endswith("manifest.json")]


def test_nothing_is_written_over(store: Path, tmp_path: Path, tiny: TransformerEngine, memory: dict[str, Any]) -> None:
    copy_store(store, URL)
    other = Datastore.build(tmp_path / "other", some_pairs(5), tiny).path
    before = {name: bytes(content.getvalue()) for name, content in memory.items()}
    with pytest.raises(DatastoreExistsError, match="another store, or an earlier state of this one, is there"):
        copy_store(other, URL)
    assert {name: bytes(content.getvalue()) for name, content in memory.items()} == before
    with pytest.raises(DatastoreExistsError, match="already exists"):
        copy_store(URL, other)


def test_places_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_url("s3://bucket/place")
    assert not any(map(is_url, ("C:\\stores", "c://stores", "stores/a:b", "/s3://x", "memory://")))
    for one, other in ((tmp_path, tmp_path / "x"), (URL, "memory://other")):
        with pytest.raises(SettingError, match="expected a directory and a URL"):
            copy_store(one, other)
    with pytest.raises(SettingError, match=r"cannot be reached .*s3:// needs `pip install 'knnmt\[s3\]'`"):
        copy_store("nothing://x", tmp_path / "x")
    with pytest.raises(SettingError, match="expected the URL of one place in storage"):
        copy_store("reference://::https://host/of/another", tmp_path / "x")
    with pytest.raises(NotADatastoreError, match="there is no datastore"):
        copy_store(tmp_path / "none", URL)
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'knnmt\[storage\]'"):
        Storage(URL)


def test_storage_that_fails_is_said(store: Path, memory: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "open", refuse)
    with pytest.raises(StorageError, match=r"cannot be reached \(RuntimeError: no credentials\).*it resumes"):
        copy_store(store, URL)


def test_the_command(store: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    for given in ((str(store), url), (url, str(tmp_path / "back"))):
        ran = CliRunner().invoke(app, ["copy", *given])
        assert ran.exit_code == 0, ran.output
        assert f"copied     {given[1]}: " in ran.output
    assert files_of(tmp_path / "back") == files_of(store)
