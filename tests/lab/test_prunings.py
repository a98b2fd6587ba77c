"""Prunings of others, in the laboratory: beside plain loops over all entries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt_lab.prunings import known, prune_known
from support.datastore_pairs import some_pairs
from support.made_stores import column, live_ids, plain_search


@given(entries=st.integers(1, 40), k=st.integers(1, 6), seed=st.integers(0, 99))
def test_known_is_right_there_and_at_all_neighbours(entries: int, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    right = generator.random(entries) < 0.8
    neighbours = generator.integers(-1, entries, (entries, k))
    expected = [
        bool(right[entry]) and all(other < 0 or right[other] for other in neighbours[entry].tolist())
        for entry in range(entries)
    ]
    assert known(neighbours, right).tolist() == expected


def test_what_the_model_knows_goes(tiny: TransformerEngine, tmp_path: Path) -> None:
    """Beside a plain search of every entry, also where some were removed."""
    store = Datastore.build(tmp_path / "s", some_pairs(25), tiny)
    store.remove(matching(origin=store.segments[0].pair(3).origin))
    live = live_ids(store)
    keys, values = column(store, "keys"), column(store, "values")
    right = np.random.default_rng(1).random(len(live)) < 0.9  # a random model is hardly ever right
    segment = store.segments[0]
    altered = np.zeros(segment.record.entries, np.uint8)
    altered[live] = right
    segment.arrays["first_choices"] = altered
    stays = []
    for entry in range(len(keys)):
        distances_sq = ((keys.astype(np.float64) - keys[entry].astype(np.float64)) ** 2).sum(axis=1)
        distances_sq[entry] = -1
        nearest_ones = distances_sq.argsort(kind="stable")[1:4]
        if not (right[entry] and right[nearest_ones].all()):
            stays.append(entry)
    assert 0 < len(stays) < len(keys)
    prune_known(store, tmp_path / "new", plain_search(store), 3)
    made = Datastore.open(tmp_path / "new")
    np.testing.assert_array_equal(column(made, "keys"), keys[stays])
    np.testing.assert_array_equal(column(made, "values"), values[stays])
    assert made.manifest.transforms == ("plac:k=3",)
    assert "counts" not in made.segments[0].arrays
    assert list(made.pairs()) == list(store.pairs())
    assert list(made.verify()) == []


def test_what_cannot_be_left_out_is_refused(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(5), tiny)
    with pytest.raises(SettingError, match="k must be at least 1"):
        prune_known(store, tmp_path / "new", plain_search(store), 0)
    segment = store.segments[0]
    segment.arrays["first_choices"] = np.ones(segment.record.entries, np.uint8)
    with pytest.raises(SettingError, match="the model knows every entry"):
        prune_known(store, tmp_path / "new", plain_search(store))
    assert not (tmp_path / "new").exists()
