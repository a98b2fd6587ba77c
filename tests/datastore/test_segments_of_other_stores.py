"""A segment that is taken over from another store is what adding its pairs makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreMismatchError
from support.datastore_pairs import some_pairs


def test_taking_over_is_adding(tiny: TransformerEngine, tmp_path: Path) -> None:
    added = Datastore.build(tmp_path / "added", some_pairs(20), tiny)
    taken = Datastore.build(tmp_path / "taken", some_pairs(20), tiny)
    other = Datastore.build(tmp_path / "other", some_pairs(30, start=20), tiny)
    change = added.add(some_pairs(30, start=20), tiny)
    assert taken.take_over(other, 0) == change
    assert list(taken.pairs()) == list(added.pairs())
    assert taken.manifest.generation == 2
    assert list(Datastore.open(taken.path, verify=True).verify()) == []
    for ours, theirs in zip(taken.segments, added.segments, strict=True):
        assert ours.arrays.keys() == theirs.arrays.keys()
        for name in ours.arrays:
            np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name])
    other.remove(lambda pair: pair.origin != "own.tsv#21")
    assert taken.take_over(other, 0).added_sentences == 1


def test_a_store_of_other_settings_is_refused(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "one", some_pairs(5), tiny)
    other = Datastore.build(tmp_path / "two", some_pairs(5), tiny, BuildConfig(key_dtype="float32"))
    before = store.manifest
    with pytest.raises(DatastoreMismatchError, match="expected key_dtype 'float16', found 'float32'"):
        store.take_over(other, 0)
    assert Datastore.open(store.path).manifest == before
