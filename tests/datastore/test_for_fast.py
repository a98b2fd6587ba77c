"""What a store made for Fast kNN-MT holds besides, and how that is kept and checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError
from support.crafted import alter_arrays
from support.datastore_pairs import some_pairs


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Datastore:
    return Datastore.build(tmp_path / "store", some_pairs(9), tiny, BuildConfig(for_fast=True))


def test_every_source_token_has_its_state_and_every_entry_a_source_token(
    tiny: TransformerEngine, store: Datastore
) -> None:
    store.add(some_pairs(3, start=20), tiny)
    store.remove(lambda pair: pair.origin == "own.tsv#2")
    store.compact()
    (segment,) = store.segments
    arrays = segment.arrays
    pairs = list(store.pairs())
    assert len(pairs) == 11
    for number, pair in enumerate(pairs):
        begin, end = arrays["source_offsets"][number : number + 2]
        source = tiny.tokenizer.encode_sources([pair.source])[0]
        assert arrays["source_tokens"][begin:end].tolist() == source
        states = tiny.encode([source]).states[0]
        np.testing.assert_allclose(arrays["source_states"][begin:end], states, atol=4e-3)  # kept in float16
        aligned = arrays["alignment"][arrays["sentences"] == number]
        assert aligned[-1] == len(source) - 1
        assert set(aligned[:-1]) <= set(range(len(source) - 1))
    assert not list(store.verify())


def test_other_stores_hold_none_of_it(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "plain", some_pairs(3), tiny)
    assert not store.manifest.for_fast
    assert "source_states" not in store.segments[0].arrays


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("alignment", lambda array: array + 40, "aligned outside its source"),
        ("alignment", lambda array: array - 1, "aligned outside its source"),
        ("source_offsets", lambda array: array[::-1], "do not divide source_tokens"),
        ("source_states", lambda array: array * np.float16("nan"), "not all finite numbers"),
        ("source_tokens", lambda array: array - 40, "a source token is outside of every vocabulary"),
    ],
)
def test_verify_looks_at_the_source_side(
    store: Datastore, name: str, change: Callable[[Array], Array], message: str
) -> None:
    alter_arrays(store.path, **{name: change})
    (problem,) = Datastore.open(store.path).verify()
    assert message in problem


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("source_offsets", lambda array: array[:-1], r"source_offsets is int64 \(\d+,\), not"),
        ("source_states", lambda array: array.astype(np.float32), "source_states is float32"),
        ("source_states", lambda array: array[:-1], "a state each"),
        ("source_tokens", None, "arrays are missing: source_tokens"),
    ],
)
def test_a_source_side_of_other_types_or_shapes_is_refused_on_opening(
    store: Datastore, name: str, change: Callable[[Array], Array] | None, message: str
) -> None:
    alter_arrays(store.path, **{name: change})
    with pytest.raises(DatastoreDamagedError, match=message):
        Datastore.open(store.path)
