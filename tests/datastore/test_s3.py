"""Stores in S3, by `s3fs` and a server of our own on this machine: killed at any moment, denied, altered."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO
from pathlib import Path

import pytest

from knnmt import Cluster, copy_store
from knnmt.datastore import slices, storage
from knnmt.datastore.building import write_store
from knnmt.datastore.storage import Storage
from knnmt.distributed.building import encode_on
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreExistsError, NotADatastoreError, StorageError
from support import warm
from support.copied_stores import files_of, store_with_index
from support.datastore_pairs import some_pairs
from support.made_ray import MadeRay
from support.s3_server import BUCKET, Bucket, s3_server

s3fs = pytest.importorskip("s3fs")
URL = f"s3://{BUCKET}/stores/projekt"
PLACE = "stores/projekt/"
PART = 5 << 20  # the smallest part of an upload that S3 allows
LARGE = "large.faiss"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    import fsspec

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setitem(fsspec.config.conf, "s3", {"default_block_size": PART})
    with s3_server() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        yield served
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = bytes(range(256)) * (2 * PART // 256 + 10)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slices, "SLICE_ENTRIES", 100)
        return store_with_index(tmp_path_factory.mktemp("made") / "made.store", tiny, LARGE, index)


@pytest.fixture
def store(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Several segments, one with a removal, with settings and an index that is uploaded in three parts."""
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 100)
    return shutil.copytree(made, tmp_path / "made.store")


def in_bucket(bucket: Bucket) -> dict[str, bytes]:
    """The objects of the store, without marks."""
    return {
        name.removeprefix(PLACE): content for name, content in bucket.objects.items() if not name.endswith(".sha256")
    }


def test_a_store_comes_back_as_it_went(store: Path, tmp_path: Path, bucket: Bucket) -> None:
    copy_store(store, URL)
    assert in_bucket(bucket) == files_of(store)
    assert [name for method, name in bucket.asked if method == "PUT"][-1] == f"{PLACE}manifest.json"
    copy_store(URL, tmp_path / "back.store")
    assert files_of(tmp_path / "back.store") == files_of(store)
    assert not bucket.uploads
    bucket.asked.clear()
    copy_store(store, URL)  # nothing but the small files is sent again
    assert not [name for method, name in bucket.asked if method in ("PUT", "POST") and name.endswith(".safetensors")]
    bucket.objects[f"{PLACE}manifest.json"] += b" "
    with pytest.raises(DatastoreExistsError, match="another store, or an earlier state of this one"):
        copy_store(store, URL)


COPY = """
import sys
import fsspec
fsspec.config.conf["s3"] = {"default_block_size": int(sys.argv[3])}
from knnmt.datastore.copying import copy_store
copy_store(sys.argv[1], sys.argv[2])
"""


def test_killed_in_the_middle_of_an_upload_it_never_looks_whole(store: Path, tmp_path: Path, bucket: Bucket) -> None:
    """Killed while the mark of a segment is sent, between two parts of a large file, and at the manifest."""
    segments = sorted(path.name for path in (store / "segments").glob("*.safetensors"))
    moments: list[Callable[[str, str], bool]] = [
        lambda method, name: (method, name) == ("PUT", f"{PLACE}segments/{segments[1]}.sha256"),
        lambda method, name: (method, name) == ("PUT", f"{PLACE}indexes/{LARGE}") and bool(parts_sent()),
        lambda method, name: (method, name) == ("PUT", f"{PLACE}manifest.json"),
    ]

    def parts_sent() -> list[int]:
        return [number for parts in bucket.uploads.values() for number in parts]

    for moment in moments:
        bucket.hold = moment
        with warm.Popen([sys.executable, "-c", COPY, str(store), URL, str(PART)], light=True) as copying:
            assert bucket.holding.wait(300)
            copying.kill()
        bucket.let_go()
        assert f"{PLACE}manifest.json" not in bucket.objects
        assert f"{PLACE}indexes/{LARGE}" not in bucket.objects or moment is moments[-1]
        for name, content in in_bucket(bucket).items():
            assert content == files_of(store)[name]
        with pytest.raises(NotADatastoreError, match="If one is being copied there, wait"):
            copy_store(URL, tmp_path / "early")
    sent = [name for method, name in bucket.asked if method == "PUT" and name.endswith(".safetensors")]
    copy_store(store, URL)
    again = [name for method, name in bucket.asked if method == "PUT" and name.endswith(".safetensors")][len(sent) :]
    assert not again  # what had its mark is not sent again
    copy_store(URL, tmp_path / "back.store")
    assert files_of(tmp_path / "back.store") == files_of(store)


def test_an_upload_that_fails_leaves_no_object(
    store: Path, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither half of one, which closing the file would make, nor parts that are paid for."""

    class Interrupted(BufferedReader):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > PART:
                raise KeyboardInterrupt
            return super().read(size)

    place = store / "indexes" / LARGE
    monkeypatch.setattr(storage, "open_regular", lambda path: Interrupted(FileIO(path)))
    with pytest.raises(KeyboardInterrupt):
        Storage(URL).put(place, "large")
    assert ("POST", f"{PLACE}large") in bucket.asked
    assert not bucket.objects
    assert not bucket.uploads


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": "another"}, r"does not allow this \(PermissionError: .*AWS_ACCESS_KEY_ID and AWS_SEC"),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/none"},
            r"does not allow this \(NoCredentialsError: .*AWS_PROFILE\) and what they may do there, and rerun",
        ),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, r"failed or cannot be reached \(.*Solve the problem, and rerun"),
    ],
)
def test_what_denies_access_is_said(
    store: Path, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    copy_store(store, URL)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    for places in ((store, f"s3://{BUCKET}/other"), (URL, tmp_path / "back")):
        with pytest.raises(StorageError, match=said):
            copy_store(*places)
    assert not (tmp_path / "back").exists()
    assert not [name for name in bucket.objects if name.startswith("other")]


def test_no_bucket_is_made(store: Path, tmp_path: Path, bucket: Bucket) -> None:
    """A mistyped name would otherwise become a bucket."""
    with pytest.raises(StorageError, match=r"the bucket or directory does not exist \(.*knnmt makes none"):
        copy_store(store, "s3://firna/stores/projekt")
    with pytest.raises(NotADatastoreError, match="there is no datastore"):
        copy_store("s3://firna/stores/projekt", tmp_path / "back")
    bucket.refuse = lambda method, _name: method == "PUT"
    with pytest.raises(StorageError, match=r"does not allow this \(PermissionError: Access Denied"):
        copy_store(store, URL)
    assert not bucket.objects


@pytest.mark.parametrize("harm", ["altered", "longer", "shorter"])
def test_altered_objects_are_refused(store: Path, tmp_path: Path, bucket: Bucket, harm: str) -> None:
    copy_store(store, URL)
    name = f"{PLACE}indexes/{LARGE}"
    content = bucket.objects[name]
    bucket.objects[name] = {"altered": content[:-1] + b"x", "longer": content + b"x", "shorter": content[:-1]}[harm]
    with pytest.raises(DatastoreDamagedError, match=r"differs from what its store records: .*Copy it again"):
        copy_store(URL, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_workers_return_segments_through_s3(
    tiny: TransformerEngine, tmp_path: Path, bucket: Bucket, made_ray: MadeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)
    write_store(tmp_path / "whole", some_pairs(40), tiny)
    bucket.objects["parts/of/others"] = b"stays"
    write_store(
        tmp_path / "s", some_pairs(40), tiny, encode=encode_on(Cluster(workers=3, storage=f"s3://{BUCKET}/parts/of"))
    )
    assert files_of(tmp_path / "s") == files_of(tmp_path / "whole")
    assert len([name for method, name in bucket.asked if method == "PUT" and name.endswith(".safetensors")]) > 4
    assert bucket.objects == {"parts/of/others": b"stays"}
