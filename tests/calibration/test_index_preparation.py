"""Preparing stores: their settings and index are saved, and stores made from them keep the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from knnmt.calibration.estimates import DEFAULT_K, Calibration
from knnmt.calibration.index_choice import Candidate, Target, prepare
from knnmt.compression.pca import reduce
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from knnmt.index.saved import read_saved
from knnmt.index.store_index import StoreIndex
from knnmt.progress import Progress
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Datastore:
    Datastore.build(tmp_path / "store", some_pairs(80), tiny)
    return Datastore.open(tmp_path / "store")


def test_a_store_gets_settings_and_an_index(store: Datastore, tiny: TransformerEngine) -> None:
    heard: list[Candidate] = []
    choice = prepare(store, tiny, on_candidate=heard.append)
    assert (choice.chosen.kind, tuple(heard)) == ("exact", choice.measured)
    assert read_saved(store) is not None
    calibration = Calibration.of(store.path)
    assert calibration is not None
    assert (calibration.k, calibration.queries) == (DEFAULT_K, store.manifest.live_entries)
    distances = calibration.nearest_distances
    assert 0 < distances[0] < distances[10] < distances[20]
    assert list(distances) == sorted(distances)
    prepare(store, tiny)
    assert Calibration.of(store.path) == calibration  # nothing depends on chance


def test_an_index_of_a_kind(store: Datastore, tiny: TransformerEngine) -> None:
    faiss_or_skip()
    choice = prepare(store, tiny, Target(0.5, 0.5), ["ivf-flat"])
    assert choice.chosen.kind == "ivf-flat"
    assert StoreIndex(store).description.startswith("ivf-flat")


def test_one_sees_how_far_everything_that_takes_long_is(store: Datastore, tiny: TransformerEngine) -> None:
    faiss_or_skip()
    seen: dict[tuple[str, str], list[tuple[int, int]]] = {}
    under_way: list[str] = []

    @contextmanager
    def bars(description: str, unit: str) -> Iterator[Progress]:
        def progress(done: int, of: int) -> None:
            seen.setdefault((description, unit), []).append((done, of))
            assert under_way in ([], [description])  # a terminal has room for one bar at a time
            under_way[:] = [description] if done < of else []

        yield progress
        assert under_way == []

    prepare(store, tiny, Target(0.5, 0.5), ["ivf-flat"], bars=bars)
    assert list(seen) == [
        ("searching exactly", "queries"),
        ("training ivf-flat", "steps"),
        ("adding to ivf-flat", "entries"),
        ("measuring ivf-flat", "queries"),
    ]
    assert all(told[0][0] == 0 and told[-1][0] == told[-1][1] > 0 for told in seen.values())


def test_development_pairs_ask_in_the_place_of_the_store(store: Datastore, tiny: TransformerEngine) -> None:
    """Pairs that stand in the store find themselves."""
    prepare(store, tiny, development=some_pairs(10, start=1000))
    new = Calibration.of(store.path)
    prepare(store, tiny, development=[*some_pairs(10), *some_pairs(10, start=1000)])
    assert new is not None
    assert Calibration.of(store.path) == new  # pairs that it holds would find themselves: they are left out
    assert new.nearest_distance(1) > 0.1
    with pytest.raises(InputError, match="holds the source of every development pair"):
        prepare(store, tiny, development=some_pairs(10))


def test_a_reduced_store_keeps_the_settings_of_the_store_it_was_made_from(
    store: Datastore, tiny: TransformerEngine, tmp_path: Path
) -> None:
    prepare(store, tiny)
    calibration = Calibration.of(store.path)
    reduced, _ = reduce(store, tmp_path / "reduced", 8)
    for development in ((), some_pairs(5, start=900)):
        choice = prepare(reduced, tiny, development=development)
        assert choice.chosen.kind == "exact"
        assert Calibration.of(reduced.path) == calibration


def test_a_reduced_store_of_an_unprepared_one_gets_an_index_all_the_same(
    store: Datastore, tiny: TransformerEngine, tmp_path: Path
) -> None:
    faiss_or_skip()
    reduced, _ = reduce(store, tmp_path / "reduced", 8)
    choice = prepare(reduced, tiny, kinds=["ivf-flat", "exact"])
    assert not torch.tensor([each.fidelity.variation for each in choice.measured]).isnan().any()
    assert Calibration.of(reduced.path) is None


def test_a_store_with_nothing_to_compare_is_trusted_with_caution(tiny: TransformerEngine, tmp_path: Path) -> None:
    Datastore.build(tmp_path / "one", some_pairs(1), tiny)
    store = Datastore.open(tmp_path / "one")
    assert prepare(store, tiny).chosen.kind == "exact"
    assert Calibration.of(store.path) is None  # so that it is estimated when there is more to go by


def test_a_store_without_entries_is_refused(store: Datastore, tiny: TransformerEngine) -> None:
    store.remove(lambda _: True)
    for development in ((), some_pairs(3, start=900)):
        with pytest.raises(InputError, match="has no entries"):
            prepare(store, tiny, development=development)
    assert read_saved(store) is None
