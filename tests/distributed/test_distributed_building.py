"""Slices handed to workers: the same store as without them, whatever order they end in and whoever dies."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterable
from concurrent import futures
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import knnmt
from knnmt import Cluster
from knnmt.adapting import adapt as adapting
from knnmt.adapting import build as ready_store
from knnmt.cli import app
from knnmt.datastore import slices
from knnmt.datastore.building import PLAN, EntryProgress, write_store
from knnmt.datastore.manifest import Manifest, SegmentRecord
from knnmt.datastore.prepared import Slice
from knnmt.datastore.storage import Storage
from knnmt.distributed import building
from knnmt.distributed.building import Job, encode_on, encode_part, encode_with
from knnmt.distributed.cluster import connected
from knnmt.engine.base import Engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import (
    ClusterError,
    DatastoreDamagedError,
    DatastoreMismatchError,
    MissingDependencyError,
    SettingError,
    StorageError,
)
from support.copied_stores import files_of
from support.datastore_pairs import some_pairs
from support.made_ray import MadeRay


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)


class MadeWorkers:
    """Workers of this process that do what they were given in any order, only when they have no room left."""

    def __init__(self, do: Callable[[str, Slice], SegmentRecord], room: int, seed: int) -> None:
        self.room, self.most = room, 0
        self._do, self._random = do, random.Random(seed)
        self._given: list[tuple[Future[SegmentRecord], str, Slice]] = []

    def submit(self, name: str, part: Slice) -> Future[SegmentRecord]:
        self._given.append((Future(), name, part))
        self.most = max(self.most, len(self._given))
        return self._given[-1][0]

    def work(self) -> None:
        future, name, part = self._given.pop(self._random.randrange(len(self._given)))
        try:
            future.set_result(self._do(name, part))
        except BaseException as error:
            future.set_exception(error)


def encoding(engine: Engine[Any], room: int, do: Callable[..., SegmentRecord] = encode_part, seed: int = 0) -> Any:
    """What builds with such workers; the loop waits for one of them, and one then works."""

    def encode(
        _engine: Engine[Any],
        parts: Iterable[Slice],
        directory: Path,
        manifest: Manifest,
        batch_tokens: int | None,
        progress: EntryProgress,
    ) -> tuple[list[SegmentRecord], int]:
        plan = hashlib.sha256((directory.parent / PLAN).read_bytes()).hexdigest()
        job = Job(directory, plan, manifest, engine.name, "cpu", batch_tokens, 1)
        workers = MadeWorkers(lambda name, part: do(job, name, part), room, seed)
        with pytest.MonkeyPatch.context() as patched:

            def wait(waiting: Any, return_when: str) -> Any:
                workers.work()
                return futures.wait(waiting, return_when=return_when)

            patched.setattr(building, "wait", wait)
            found = encode_with(workers, parts, directory, manifest, progress, building._require_here)
        assert workers.most <= room
        return found

    return encode


@pytest.fixture
def whole(tiny: TransformerEngine, tmp_path: Path) -> dict[str, bytes]:
    write_store(tmp_path / "whole", some_pairs(40), tiny)
    return files_of(tmp_path / "whole")


@pytest.mark.parametrize(("room", "seed"), [(1, 0), (3, 1), (100, 2)])
def test_workers_make_the_same_store_in_any_order(
    tiny: TransformerEngine, tmp_path: Path, whole: dict[str, bytes], room: int, seed: int
) -> None:
    heard: list[tuple[int, int]] = []
    result = write_store(
        tmp_path / "s",
        some_pairs(40),
        tiny,
        progress=lambda *done: heard.append(done),
        encode=encoding(tiny, room, seed=seed),
    )
    assert files_of(tmp_path / "s") == whole
    assert (result.reused, len(heard)) == (0, len(result.manifest.segments))
    assert heard == sorted(heard)
    assert heard[-1] == (40, result.manifest.entries)


def test_what_was_done_when_the_driver_died_is_not_done_again(
    tiny: TransformerEngine, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    def stop(pairs: int, _entries: int) -> None:
        if pairs > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", some_pairs(40), tiny, progress=stop, encode=encoding(tiny, 4, seed=5))
    done = len(list((tmp_path / "s.building/segments").glob("*.sha256")))
    assert done >= 2
    names = []

    def counted(job: Job, name: str, part: Slice) -> SegmentRecord:
        names.append(name)
        return encode_part(job, name, part)

    result = write_store(tmp_path / "s", some_pairs(40), tiny, encode=encoding(tiny, 4, counted))
    assert result.reused == done
    assert len(names) == len(result.manifest.segments) - done
    assert files_of(tmp_path / "s") == whole


def test_a_directory_that_is_not_shared_is_noticed_on_both_sides(tiny: TransformerEngine, tmp_path: Path) -> None:
    def elsewhere(job: Job, name: str, part: Slice) -> SegmentRecord:
        record = encode_part(job, name, part)
        (job.directory / name).unlink()
        return record

    with pytest.raises(StorageError, match=r"bytes to this file, but this machine sees none. Put the store on a file"):
        write_store(tmp_path / "s", some_pairs(9), tiny, encode=encoding(tiny, 2, elsewhere))

    def unseen(job: Job, name: str, part: Slice) -> SegmentRecord:
        return encode_part(replace(job, directory=tmp_path / "away" / "segments"), name, part)

    with pytest.raises(StorageError, match=r"does not see this file, which the build wrote\. Put the store on"):
        write_store(tmp_path / "s", some_pairs(9), tiny, encode=encoding(tiny, 2, unseen))


def test_a_worker_with_another_model_is_refused(tiny: TransformerEngine, tmp_path: Path, make_checkpoint: Any) -> None:
    other = str(make_checkpoint(decoder_ffn_dim=40))

    def mistaken(job: Job, name: str, part: Slice) -> SegmentRecord:
        return encode_part(replace(job, model=other), name, part)

    with pytest.raises(DatastoreMismatchError, match=r"the model of .* differs"):
        write_store(tmp_path / "s", some_pairs(9), tiny, encode=encoding(tiny, 2, mistaken))
    assert not (tmp_path / "s").exists()


def test_build_and_adapt_hand_slices_to_the_cluster(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Cluster] = []

    def made(cluster: Cluster) -> Any:
        asked.append(cluster)
        return encoding(tiny, 2)

    monkeypatch.setattr(ready_store, "encode_on", made)
    monkeypatch.setattr(adapting, "encode_on", made)
    pairs = some_pairs(12)
    built = knnmt.build(pairs, tmp_path / "built", model=tiny, cluster=Cluster(workers=2), estimate=False)
    translator = knnmt.Translator(tiny.name, device="cpu", settings="raw")
    adapted = knnmt.adapt(pairs, tmp_path / "adapted", model=translator, sample=0, cluster=Cluster(workers=3))
    assert [each.workers for each in asked] == [2, 3]
    assert sorted(pair.origin for pair in adapted.store.pairs()) == sorted(pair.origin for pair in built.store.pairs())


def test_segments_go_through_storage(
    tiny: TransformerEngine, tmp_path: Path, whole: dict[str, bytes], made_ray: MadeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.store.clear()
    cluster = Cluster(workers=3, storage="memory://parts/of")
    fetched: list[str] = []
    fetch = Storage.fetch

    def dying(self: Any, name: str, *given: Any) -> None:
        if len(fetched) == 2:
            raise KeyboardInterrupt
        fetched.append(name)
        fetch(self, name, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "fetch", dying)
        with pytest.raises(KeyboardInterrupt):
            write_store(tmp_path / "s", some_pairs(40), tiny, encode=encode_on(cluster))
    left = [name for name in files.store if name.endswith(".safetensors")]
    assert len(left) > 2
    tried = made_ray.tried
    encoded: list[Slice] = []
    encode = slices.encode_slice

    def counted(engine: Engine[Any], part: Slice, *given: Any) -> Any:
        encoded.append(part)
        return encode(engine, part, *given)

    monkeypatch.setattr(building, "encode_slice", counted)
    result = write_store(tmp_path / "s", some_pairs(40), tiny, encode=encode_on(cluster))
    assert result.reused == 2
    assert len(encoded) == len(result.manifest.segments) - len(left)  # what the first driver had not fetched is taken
    assert made_ray.tried - tried == len(result.manifest.segments) - 2
    assert files_of(tmp_path / "s") == whole
    assert not files.store


def test_storage_that_gives_other_bytes_is_refused(
    tiny: TransformerEngine, tmp_path: Path, made_ray: MadeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.store.clear()
    put = Storage.put

    def altering(self: Any, path: Path, name: str) -> Any:
        stored = put(self, path, name)
        content = files.cat_file(self._path(name))
        files.pipe_file(self._path(name), content[:-1] + bytes([content[-1] ^ 1]))
        return stored

    monkeypatch.setattr(Storage, "put", altering)
    with pytest.raises(DatastoreDamagedError, match="it has other bytes"):
        write_store(tmp_path / "s", some_pairs(9), tiny, encode=encode_on(Cluster(storage="memory://parts")))
    assert not (tmp_path / "s").exists()
    files.store.clear()


def test_options_of_a_cluster_need_one(tmp_path: Path) -> None:
    for more in (["--workers", "2"], ["--gpus-per-worker", "1"], ["--storage", "s3://a/b"]):
        ran = CliRunner().invoke(app, ["build", "x.tsv", "-o", str(tmp_path / "s"), *more])
        assert isinstance(ran.exception, SettingError)
        assert "need --ray ADDRESS" in str(ran.exception)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"address": ""}, "the address of a cluster must be"),
        ({"address": "--workers"}, "must be 'local', 'auto', host:port or ray://host:port, got '--workers'"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"gpus_per_worker": -1.0}, "at least 0, got -1.0"),
        ({"gpus_per_worker": float("nan")}, "at least 0, got nan"),
        ({"storage": "/shared/parts"}, "storage must be a URL such as"),
    ],
)
def test_clusters_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Cluster(**given)


def test_without_ray_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'knnmt\[ray\]'"), connected(Cluster()):
        pass


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("host:1", ConnectionError("no route"), r"host:1: cannot reach a Ray cluster .* \(no route"),
        ("local", Exception("the node timed out"), r"did not start on this machine \(the node timed out\).*rerun"),
    ],
)
def test_a_cluster_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, address: str, error: Exception, said: str
) -> None:
    class Absent:
        def is_initialized(self) -> bool:
            return False

        def init(self, **_: object) -> None:
            raise error

    monkeypatch.setitem(sys.modules, "ray", Absent())
    with pytest.raises(ClusterError, match=said), connected(Cluster(address)):
        pass
