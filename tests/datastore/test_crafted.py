"""Stores of somebody who means harm: each is refused in our words, and none crashes, hangs or reads other memory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.compression.pca import reduce
from knnmt.datastore import verification
from knnmt.datastore.arrays import Array, write_arrays
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.segment import REQUIRED
from knnmt.datastore.settings import write_settings
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreError, KnnmtError
from knnmt.index.store_index import StoreIndex
from knnmt.translator.explanation import explain
from knnmt.translator.translator import Translator
from support.crafted import acknowledge, alter_arrays, alter_record, read_arrays, segment_file
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")

SENTENCES = ["Satz 3 ja ja ja", "Satz 7"]
SHORT: dict[str, Any] = {"beam": 2, "max_tokens": 8}  # a random model ends no sentence early


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: TransformerEngine) -> Path:
    pairs = [replace(pair, context=f"dialog {number}") for number, pair in enumerate(some_pairs(12))]
    store = Datastore.build(tmp_path_factory.mktemp("made") / "s", pairs, tiny, BuildConfig(for_fast=True))
    store.remove(matching(origin="own.tsv#3"))
    return store.path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "s")


def outcomes(store: Path, translator: Translator) -> list[str]:
    """Do with a store all that can be done; what was wrong, in our own words. Any other error is raised."""
    found = []

    def attempt(use: Callable[[], object]) -> None:
        try:
            use()
        except DatastoreError as error:
            found.append(str(error))

    def look() -> None:
        opened = Datastore.open(store)
        found.extend(opened.verify())
        for use in (
            lambda: [opened.entry(number) for number in range(opened.entries)],
            lambda: opened.export(store.with_name("exported.tsv")),
            lambda: StoreIndex(opened).search(torch.zeros(3, opened.manifest.dim), 4),
            lambda: reduce(opened, store.with_name("reduced"), 4),
        ):
            attempt(use)

    attempt(look)
    attempt(lambda: translator.translate(SENTENCES, datastore=store, **SHORT))
    attempt(lambda: translator.translate(SENTENCES, datastore=store, fast=2, **SHORT))
    attempt(lambda: translator.translate(SENTENCES, datastore=store, segments=2, **SHORT))
    attempt(lambda: list(explain(translator, SENTENCES, datastore=store, **SHORT)))
    attempt(lambda: Datastore.open(store).compact())
    translator.memories.close(store)
    return found


def test_a_sound_store_shows_none_of_this(store: Path, translator: Translator) -> None:
    assert outcomes(store, translator) == []


# Arrays ---------------------------------------------------------------------------------------------------------------

WRONG_FORMS: list[tuple[str, Callable[[Array], Array]]] = [
    ("keys", lambda array: array[:-1]),
    ("keys", lambda array: array[:, :7]),
    ("keys", lambda array: array[0]),
    ("keys", lambda array: array.astype(np.float32)),
    ("keys", lambda array: array.astype(np.int32)),
    ("values", lambda array: array[:-1]),
    ("values", lambda array: array.astype(np.int64)),
    ("values", lambda array: array[:, None]),
    ("sentences", lambda array: array[:1]),
    ("positions", lambda array: array.astype(np.float32)),
    ("target_tokens", lambda array: array.astype(np.uint8)),
    ("target_offsets", lambda array: array[:-1]),
    ("text_offsets", lambda array: array[:4]),
    ("texts", lambda array: array.astype(np.int32)),
    ("alignment", lambda array: array[:-1]),
    ("alignment", lambda array: array.astype(np.uint8)),
    ("log_probabilities", lambda array: array.astype(np.float32)),
    ("first_choices", lambda array: array[:-1]),
    ("lines", lambda array: array[:-1]),
    ("lines", lambda array: array.astype(np.int32)),
    ("source_states", lambda array: array[:, 0]),
]


@pytest.mark.parametrize(("name", "change"), WRONG_FORMS)
def test_arrays_of_other_types_and_shapes_are_refused_on_opening(
    store: Path, name: str, change: Callable[[Array], Array]
) -> None:
    alter_arrays(store, **{name: change})
    with pytest.raises(DatastoreDamagedError, match=rf"{name} is .*, not .*\. Restore the file, or build"):
        Datastore.open(store)


def at(place: int | slice, value: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array[place] = value
        return array

    return change


def rising(*numbers: int) -> Callable[[Array], Array]:
    """Numbers after the first whose differences are all above 0, because they are too large for their type."""

    def change(array: Array) -> Array:
        array[1 : 1 + len(numbers)] = numbers
        return array

    return change


WRAPPED_32 = rising(2**31 - 1, 5 - 2**31, -5)
WRAPPED_64 = rising(2**63 - 1 - 2**31, 2**30 - 2**63, -5)
OFFSETS = ("text_offsets", "target_offsets", "source_offsets", "posting_offsets", "word_offsets")
WRONG_CONTENT = [
    *[(name, at(5, value)) for name in ("values", "target_tokens") for value in (-1, 231, 2**31 - 1, -(2**31))],
    *[(name, at(5, value)) for name in ("sentences", "positions") for value in (-1, 99, 2**31 - 1)],
    *[("alignment", at(5, value)) for value in (99, 2**16 - 1)],
    *[("log_probabilities", at(5, value)) for value in (1, np.nan, np.inf)],
    ("first_choices", at(5, 2)),
    ("lines", at(0, 1)),
    ("lines", at(1, 2)),
    ("lines", at(slice(None), 1)),
    *[(name, at(2, value)) for name in ("text_offsets", "target_offsets") for value in (-5, 2**40, -(2**63))],
    *[("source_offsets", at(2, value)) for value in (-5, 2**40, -(2**63))],
    *[("source_tokens", at(2, value)) for value in (-1, 2**31 - 1)],
    *[(name, at(3, value)) for name in ("keys", "source_states") for value in (np.nan, np.inf, -np.inf)],
    ("keys", lambda array: array * np.float16("nan")),
    ("texts", at(3, 0xFF)),
    *[("posting_sentences", at(slice(None), value)) for value in (-1, 12, 2**31 - 1)],
    *[("posting_offsets", at(2, value)) for value in (-5, 2**40, -(2**63))],
    *[("posting_tokens", at(-1, value)) for value in (-1, 2**24 - 1, 2**31 - 1)],
    *[("word_sentences", at(slice(None), value)) for value in (-1, 12, 2**31 - 1)],
    *[("word_offsets", at(2, value)) for value in (-5, 2**40, -(2**63))],
    ("word_tokens", at(0, 2**31 - 1)),
    *[(name, WRAPPED_64) for name in OFFSETS],
    *[(name, WRAPPED_32) for name in ("sentences", "posting_tokens")],
    ("sentences", lambda array: array[::-1]),
    ("text_offsets", lambda array: array * 0),
]


@pytest.mark.parametrize(("name", "change"), WRONG_CONTENT)
def test_content_that_cannot_be_is_said_wherever_it_is_used(
    store: Path, translator: Translator, name: str, change: Callable[[Array], Array]
) -> None:
    alter_arrays(store, **{name: change})
    assert outcomes(store, translator)


@pytest.mark.parametrize(
    ("name", "change"),
    [("source_tokens", at(2, -1)), ("source_tokens", at(2, 2**31 - 1)), ("source_offsets", WRAPPED_64)],
)
def test_segments_are_chosen_by_sound_tokens_only(
    store: Path, translator: Translator, name: str, change: Callable[[Array], Array]
) -> None:
    alter_arrays(store, **{name: change})
    with pytest.raises(DatastoreDamagedError, match=r"a source token is outside of every vocabulary|do not divide"):
        translator.translate(SENTENCES, datastore=store, segments=2, **SHORT)
    translator.memories.close(store)


@pytest.mark.parametrize("name", ["source_offsets", "target_offsets", "text_offsets"])
def test_nothing_is_joined_with_offsets_that_do_not_divide(store: Path, tiny: TransformerEngine, name: str) -> None:
    alter_arrays(store, **{name: WRAPPED_64})
    with pytest.raises(DatastoreDamagedError, match=f"{name} do not divide"):
        Datastore.open(store).add(some_pairs(12), tiny)


@pytest.mark.parametrize("put", ["link", "nested"])
def test_an_addition_reads_no_index_record_without_end(store: Path, tiny: TransformerEngine, put: str) -> None:
    record = store / "indexes" / "index.json"
    record.parent.mkdir(exist_ok=True)
    if put == "link":
        (store / "elsewhere").write_text('{"covers": []}')
        record.symlink_to(store / "elsewhere")
    else:
        record.write_text("[" * 100_000)
    before = segment_file(store)
    Datastore.open(store).add(some_pairs(12), tiny)
    assert before.exists()  # not joined: it may be covered by an index that cannot be read


def test_content_wrong_by_chance_is_said_wherever_it_is_used(
    store: Path, translator: Translator, tiny: TransformerEngine, tmp_path: Path
) -> None:
    chance = np.random.default_rng(5)
    whole = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    for _ in range(12):
        for path, content in whole.items():
            path.write_bytes(content)
        name = chance.choice(list(read_arrays(segment_file(store))))

        def change(array: Array) -> Array:
            octets = array.view(np.uint8).reshape(-1)
            octets[chance.integers(0, len(octets), 4)] = chance.integers(0, 256, 4)
            return array

        alter_arrays(store, **{name: change})
        outcomes(store, translator)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_every_number_that_is_not_finite_is_known(dtype: Any) -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(dtype)
    found = [verification._all_finite(numbers[place : place + 1]) for place in range(len(numbers))]
    assert found == np.isfinite(numbers).tolist()


def test_the_removed_sentences_are_looked_at_in_the_same_way(store: Path, translator: Translator) -> None:
    path = next((store / "segments").glob("*removed*"))
    for number in (-1, 2**31 - 1):
        write_arrays(path, {"removed": np.array([number], np.int32)})
        acknowledge(store, path)
        assert any("not a sorted list" in problem for problem in Datastore.open(store).verify())
        with pytest.raises(DatastoreDamagedError, match=r"a removed sentence is not one of its \d+\."):
            list(explain(translator, SENTENCES, datastore=store))
        translator.memories.close(store)
    for removed in (np.array([[1]], np.int32), np.array([1], np.int64), np.arange(4, dtype=np.int32)):
        write_arrays(path, {"removed": removed})
        acknowledge(store, path)
        with pytest.raises(DatastoreDamagedError, match="removed is"):
            Datastore.open(store)
    for number in (-1, 2**31 - 1):
        write_arrays(path, {"removed": np.array([number], np.int32)})
        acknowledge(store, path)
        assert outcomes(store, translator)


@pytest.mark.parametrize("absent", REQUIRED)
def test_a_segment_without_one_of_its_arrays_is_refused(store: Path, absent: str) -> None:
    alter_arrays(store, **{absent: None})
    with pytest.raises(DatastoreDamagedError, match=f"arrays are missing: {absent}"):
        Datastore.open(store)


def test_states_of_other_source_tokens_are_refused(tmp_path: Path, tiny: TransformerEngine) -> None:
    store = Datastore.build(tmp_path / "plain", some_pairs(3), tiny).path
    path = segment_file(store)
    write_arrays(path, {**read_arrays(path), "source_states": np.zeros((4, 32), np.float16)})
    acknowledge(store, path)
    with pytest.raises(DatastoreDamagedError, match="do not have a state each"):
        Datastore.open(store)


def test_counts_below_one_are_said(store: Path, translator: Translator) -> None:
    path = segment_file(store)
    arrays = read_arrays(path)
    write_arrays(path, {**arrays, "counts": np.zeros(len(arrays["values"]), np.int32)})
    acknowledge(store, path)
    assert any("fewer than one" in problem for problem in outcomes(store, translator))


# Files ----------------------------------------------------------------------------------------------------------------


def header_with(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda header: {**header, "values": {**header["values"], **changes}}


HEADERS: list[Callable[[dict[str, Any]], Any]] = [
    header_with(data_offsets=[-64, -64]),
    header_with(data_offsets=[0, 2**62]),
    header_with(data_offsets=["0", 4]),
    header_with(data_offsets=[0]),
    header_with(data_offsets=[2, 2], shape=[0]),
    header_with(shape=[-1]),
    header_with(shape=[-2, -3], data_offsets=[0, 24]),
    header_with(shape=[2**62, 0], data_offsets=[0, 0]),
    header_with(shape=[10**12], data_offsets=[0, 4 * 10**12]),
    header_with(shape="all"),
    header_with(shape=[1.0]),
    header_with(dtype="F128"),
    header_with(dtype=["I32"]),
    header_with(other=1),
    lambda header: {**header, "values": None},
    lambda header: {**header, "__metadata__": {"format": "pt"}},
    lambda header: [header],
    lambda header: [[[[]]]] * 3,
]


@pytest.mark.parametrize("change", HEADERS)
def test_headers_that_lie_are_refused_on_opening(store: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = segment_file(store)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = json.dumps(change(json.loads(content[8 : 8 + length]))).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    acknowledge(store, path)
    with pytest.raises(DatastoreDamagedError, match=r"header is invalid|values is"):
        Datastore.open(store)


@pytest.mark.parametrize("start", [b"", b"\0" * 7, b"\xff" * 8, (2**40).to_bytes(8, "little"), b"\2" + b"\0" * 7])
def test_files_that_are_no_arrays_are_refused_on_opening(store: Path, start: bytes) -> None:
    segment_file(store).write_bytes(start)
    acknowledge(store, segment_file(store))
    with pytest.raises(DatastoreDamagedError, match="header is invalid"):
        Datastore.open(store)


def test_a_deeply_nested_header_is_refused_on_opening(store: Path) -> None:
    for depth in (65, 900, 100_000):
        text = b"[" * depth + b"]" * depth
        segment_file(store).write_bytes(len(text).to_bytes(8, "little") + text)
        acknowledge(store, segment_file(store))
        with pytest.raises(DatastoreDamagedError, match="nested too deeply"):
            Datastore.open(store)


def put_a_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def put_a_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_a_link(path: Path) -> None:
    path.with_name("before").rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def put_a_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [put_a_link_to_zeros, put_a_pipe, put_a_link, put_a_directory])
@pytest.mark.parametrize("name", ["manifest.json", "settings.json", "segment", "removed"])
def test_what_is_not_a_regular_file_is_not_read(store: Path, name: str, put: Callable[[Path], None]) -> None:
    write_settings(store)
    found = {"segment": segment_file(store), "removed": next((store / "segments").glob("*removed*"))}
    path = found.get(name, store / name)
    path.rename(path.with_name("before"))
    put(path)
    with pytest.raises(DatastoreDamagedError, match=r"it is a link|not a regular file|Is a directory"):
        Datastore.open(store, verify=True)


def test_a_sparse_file_is_not_read_whole(store: Path) -> None:
    write_settings(store)
    for name in ("manifest.json", "settings.json"):
        path = store / name
        before = path.read_bytes()
        with path.open("ab") as file:
            file.truncate(1 << 40)
        with pytest.raises(DatastoreDamagedError, match=r"bytes; at most"):
            Datastore.open(store, verify=True)
        path.write_bytes(before)


# The manifest ---------------------------------------------------------------------------------------------------------

MANIFESTS: list[dict[str, Any]] = [
    {"dim": 10**9},
    {"dim": 33},
    {"dim": 0},
    {"dim": -32},
    {"dim": "32"},
    {"dim": 32.0},
    {"dim": True},
    {"dim": None},
    {"dim": 10**30},
    {"vocabulary": 0},
    {"vocabulary": 2**40},
    {"vocabulary": float("nan")},
    {"key_dtype": "float64"},
    {"key_dtype": "object"},
    {"key_dtype": 16},
    {"generation": 0},
    {"generation": "1"},
    {"next_segment": -1},
    {"transforms": "pca"},
    {"transforms": [1]},
    {"segments": {}},
    {"segments": [None]},
    {"segments": [[]]},
    {"projection": []},
    {"projection": {"file": "x"}},
    {"for_fast": 1},
    {"model": 7},
    {"source_language": None},
    {"unknown": 1},
]


@pytest.mark.parametrize("changes", MANIFESTS, ids=str)
def test_a_manifest_of_other_types_and_values_is_refused(store: Path, changes: dict[str, Any]) -> None:
    alter_record(store / "manifest.json", lambda content: content.update(changes))
    with pytest.raises(DatastoreDamagedError, match=rf"{next(iter(changes))}|keys is"):
        Datastore.open(store)


@pytest.mark.parametrize("name", ["model", "dim", "vocabulary", "key_dtype", "target_language"])
def test_a_manifest_without_a_field_is_refused(store: Path, name: str) -> None:
    alter_record(store / "manifest.json", lambda content: content.pop(name))
    with pytest.raises(DatastoreDamagedError, match=rf"lacks {name}"):
        Datastore.open(store)


SEGMENTS: list[dict[str, Any]] = [
    {"entries": 10**12},
    {"entries": -1},
    {"entries": 1.5},
    {"sentences": 10**12},
    {"sentences": None},
    {"stored": "x"},
    {"stored": {"file": "a", "bytes": -1, "sha256": "0" * 64}},
    {"stored": {"file": "a", "bytes": 1, "sha256": "x"}},
    {"removed": {"stored": None, "sentences": 1, "entries": 1}},
    {"removed": {"stored": {"file": "a", "bytes": 1, "sha256": "0" * 64}, "sentences": 99, "entries": 1}},
    {"removed": {"stored": {"file": "a", "bytes": 1, "sha256": "0" * 64}, "sentences": 1, "entries": -1}},
]


@pytest.mark.parametrize("changes", SEGMENTS, ids=str)
def test_records_of_segments_that_lie_are_refused(store: Path, changes: dict[str, Any]) -> None:
    alter_record(store / "manifest.json", lambda content: content["segments"][0].update(changes))
    with pytest.raises(DatastoreDamagedError, match=r"segments\[0\]|values is|target_offsets is"):
        Datastore.open(store)


def test_a_file_that_is_named_twice_is_refused(store: Path) -> None:
    alter_record(store / "manifest.json", lambda content: content["segments"].append(content["segments"][0]))
    with pytest.raises(DatastoreDamagedError, match="more than once"):
        Datastore.open(store)


@pytest.mark.parametrize("depth", [65, 400, 900, 100_000])
def test_a_deeply_nested_manifest_is_refused(store: Path, depth: int) -> None:
    (store / "manifest.json").write_text('{"format": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(DatastoreDamagedError, match="nested too deeply"):
        Datastore.open(store)


def test_keys_and_values_of_another_model_are_refused(store: Path, translator: Translator) -> None:
    """Sound in itself, and with the fingerprints of a model that its keys cannot be of."""
    alter_arrays(store, keys=lambda array: np.tile(array, 4))
    alter_record(store / "manifest.json", lambda content: content.update(dim=128))
    with pytest.raises(DatastoreDamagedError, match="keys have 128 dimensions"):
        translator.translate(SENTENCES, datastore=store)
    alter_arrays(store, keys=lambda array: array[:, :32])
    alter_record(store / "manifest.json", lambda content: content.update(dim=32, vocabulary=500))
    with pytest.raises(DatastoreDamagedError, match="its values 500 tokens"):
        translator.translate(SENTENCES, datastore=store)


def test_a_store_of_another_shape_put_in_the_place_of_an_open_one_is_refused(
    store: Path, translator: Translator
) -> None:
    opened = Datastore.open(store)
    alter_arrays(store, keys=lambda array: np.tile(array, 4))
    alter_record(store / "manifest.json", lambda content: content.update(dim=128, generation=9))
    with pytest.raises(KnnmtError, match="a store of another model has replaced the open one"):
        opened.refresh()
    assert opened.entry(0).key.shape == (32,)


# The projection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mean", lambda array: array[:-1]),
        ("mean", lambda array: array.astype(np.float64)),
        ("components", lambda array: array[:-1]),
        ("components", lambda array: array[:, :-1]),
        ("components", lambda array: array.T),
        ("components", at(0, np.nan)),
        ("mean", at(0, np.inf)),
        ("explained_variance", lambda array: array[:-1]),
    ],
)
def test_projections_that_do_not_fit_are_refused(
    store: Path, translator: Translator, name: str, change: Callable[[Array], Array]
) -> None:
    place = store.with_name("shorter")
    reduce(Datastore.open(store), place, 8)
    path = place / "segments" / "projection.safetensors"
    arrays = read_arrays(path)
    write_arrays(path, {**arrays, name: np.ascontiguousarray(change(arrays[name]))})
    acknowledge(place, path)
    with pytest.raises(DatastoreDamagedError):
        translator.translate(SENTENCES, datastore=place)
