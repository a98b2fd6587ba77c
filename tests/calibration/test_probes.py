"""How far a clustered search looks is decided by what it then finds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from knnmt.calibration import index_choice as choosing
from knnmt.calibration.index_choice import Target, choose_probes, settle
from knnmt.datastore.store import Datastore
from knnmt.index import store_index
from knnmt.index.entries import Entries
from knnmt.index.on_device import DeviceIndex
from knnmt.retrieval.open_store import OpenStore
from support.devices import DEVICES
from support.index_stores import assert_exact, clustered, write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return write_store(tmp_path_factory.mktemp("stores") / "store", [clustered(8_000)])


@pytest.mark.parametrize("device", DEVICES)
def test_the_fewest_probes_that_hold_the_target(store: Datastore, device: str) -> None:
    parts = 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.6
    entries = Entries(store)
    index = DeviceIndex(entries, device, clustered=True)
    probes = []
    for target in (Target(0.5, 0.5), Target(0.9, 0.05), Target(0.99, 0.01)):
        measured = settle(index, entries, target=target, sentences=20, parts=parts)
        assert measured is not None
        assert target.reached_by(measured)
        assert index.clusters.settled
        probes.append(index.clusters.settings.probes)
    assert probes == sorted(set(probes))


@pytest.mark.parametrize("device", DEVICES)
def test_where_nothing_holds_it_search_is_exact(store: Datastore, device: str) -> None:
    entries = Entries(store)
    index = DeviceIndex(entries, device, clustered=True)
    assert settle(index, entries, target=Target(1.0, 0.0), sentences=20, parts=(0.1,)) is None
    assert not index.clustered
    queries = torch.from_numpy(clustered(20, seed=3))
    distances_sq, ids = index.search(queries.to(device), 8)
    assert_exact((distances_sq.cpu(), ids.cpu()), store, queries, 8)


@pytest.mark.cuda
def test_an_open_store_is_settled_once(store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_index, "_MIN_CLUSTERED_ENTRIES", 1000)
    opened = OpenStore(store, "cuda", choose_probes=choose_probes)
    part = opened.index.clustered
    assert part is not None
    assert part.clusters.settled
    assert opened.index.description == f"clusters, {part.clusters.settings.in_words}, 8,000 entries"
    monkeypatch.setattr(choosing, "sample", lambda *_: pytest.fail("measured again"))
    opened.refresh()
