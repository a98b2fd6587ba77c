"""Whatever happened to a store, it is refused with its own message, and never read as something else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from knnmt.datastore.arrays import Array, arrays_in, write_arrays
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreError, DatastoreVersionError, NotADatastoreError
from support.crafted import alter_arrays, segment_file
from support.datastore_pairs import some_pairs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: TransformerEngine) -> Path:
    store = Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(10), tiny)
    store.remove(matching(origin="own.tsv#3"))
    return store.path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "s")


def no_store(store: Path) -> None:
    shutil.rmtree(store)


def a_file(store: Path) -> None:
    shutil.rmtree(store)
    store.write_text("not a store")


def an_empty_directory(store: Path) -> None:
    shutil.rmtree(store)
    store.mkdir()


def an_unfinished_build(store: Path) -> None:
    store.rename(store.with_name("s.building"))


def another_json(store: Path) -> None:
    (store / "manifest.json").write_text('{"format": "something else"}')


def broken_json(store: Path) -> None:
    path = store / "manifest.json"
    path.write_bytes(path.read_bytes()[:200])


def one_byte_of_the_manifest(store: Path) -> None:
    path = store / "manifest.json"
    path.write_text(path.read_text().replace('"dim": 32', '"dim": 33'))


def another_format(store: Path) -> None:
    path = store / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))


def a_missing_segment(store: Path) -> None:
    segment_file(store).unlink()


def a_cut_segment(store: Path) -> None:
    path = segment_file(store)
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE: list[tuple[Callable[[Path], None], type[DatastoreError], str]] = [
    (no_store, NotADatastoreError, "there is no datastore. Make one with: knnmt build"),
    (a_file, NotADatastoreError, "found a file. To make a store from a memory: knnmt build"),
    (an_empty_directory, NotADatastoreError, r"found a directory without manifest\.json"),
    (an_unfinished_build, NotADatastoreError, "There is an unfinished build: rerun the same"),
    (another_json, NotADatastoreError, "found another kind of file"),
    (broken_json, DatastoreDamagedError, "not valid JSON"),
    (one_byte_of_the_manifest, DatastoreDamagedError, "checksum does not fit"),
    (
        another_format,
        DatastoreVersionError,
        r"version 2 of the format; this knnmt reads version 3.*version that reads it",
    ),
    (a_missing_segment, DatastoreDamagedError, r"cannot be read: No such file.*Restore"),
    (a_cut_segment, DatastoreDamagedError, r"expected [\d,]+ bytes, found [\d,]+"),
]


@pytest.mark.parametrize(("damage", "error", "message"), DAMAGE, ids=[damage.__name__ for damage, _, _ in DAMAGE])
def test_a_damaged_store_is_refused_on_opening(
    store: Path, damage: Callable[[Path], None], error: type[DatastoreError], message: str
) -> None:
    damage(store)
    with pytest.raises(error, match=message):
        Datastore.open(store)


def test_every_single_altered_byte_of_an_array_is_found_by_verify(store: Path) -> None:
    path = segment_file(store)
    whole = path.read_bytes()
    generator, first = np.random.default_rng(2), 8 + int.from_bytes(whole[:8], "little")
    for place in [*generator.integers(first, len(whole), 20).tolist(), len(whole) - 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        problems = list(Datastore.open(store).verify())
        assert any("its bytes were altered" in problem for problem in problems)
        with pytest.raises(DatastoreDamagedError, match=r"problems, the first: .*its bytes were altered"):
            Datastore.open(store, verify=True)
    path.write_bytes(whole)
    assert list(Datastore.open(store, verify=True).verify()) == []


WRONG = [
    ("values", lambda array: array + 1, "not the token at its position"),
    ("values", lambda array: array * 0 - 1, "outside the vocabulary"),
    ("positions", lambda array: array + 40, "outside its sentence"),
    ("sentences", lambda array: array + 40, "belongs to no sentence"),
    ("sentences", lambda array: array[::-1], "or not in order"),
    ("target_tokens", lambda array: array + 231, "a token is outside the vocabulary"),
    ("keys", lambda array: array * np.float16("nan"), "not a finite number"),
    ("target_offsets", lambda array: array[::-1], "target_offsets do not divide"),
    ("text_offsets", lambda array: array[::-1], "text_offsets do not divide"),
    ("texts", lambda array: array | np.uint8(0x80), "not UTF-8"),
    ("texts", lambda array: np.resize(np.frombuffer("ä".encode(), np.uint8), len(array)), "begins within a character"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG)
def test_every_invariant_is_checked(store: Path, name: str, change: Callable[[Array], Array], message: str) -> None:
    """A segment with right checksums and wrong content, as only a faulty writer could make it."""
    alter_arrays(store, **{name: change})
    problems = list(Datastore.open(store).verify())
    assert any(message in problem for problem in problems), problems
    assert not any("altered" in problem for problem in problems)


@pytest.mark.parametrize(("name", "other"), [("segment", b"valuez"), ("removed", b"remover")])
def test_a_header_that_names_other_arrays_is_refused_on_opening(store: Path, name: str, other: bytes) -> None:
    path = segment_file(store) if name == "segment" else next((store / "segments").glob("*removed*"))
    path.write_bytes(path.read_bytes().replace({b"valuez": b"values", b"remover": b"removed"}[other], other, 1))
    with pytest.raises(DatastoreDamagedError, match="arrays are missing"):
        Datastore.open(store)


def test_arrays_come_back_as_they_were_and_other_libraries_read_them(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    arrays: dict[str, Array] = {
        "a": np.arange(12, dtype=np.float16).reshape(3, 4),
        "b": np.arange(5, dtype=np.int64),
        "c": np.frombuffer(b"abc", np.uint8),
        "d": np.empty((0, 7), np.float32),
        "e": np.arange(3, dtype=np.int32)[::-1],
    }
    write_arrays(tmp_path / "x.safetensors", arrays)
    mapped = arrays_in((tmp_path / "x.safetensors").read_bytes(), tmp_path)
    for found in (mapped, load_file(tmp_path / "x.safetensors")):
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
            assert found[name].ctypes.data % array.dtype.itemsize == 0
    with pytest.raises(ValueError, match="read-only"):
        mapped["b"][0] = 1
