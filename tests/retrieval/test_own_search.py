"""Extension points of an open store: a search of one's own, and other settings of its index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from knnmt import Datastore, OpenStore, SearchSettings, build_index
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.index.store_index import StoreIndex
from support.datastore_pairs import some_pairs
from support.index_stores import clustered, faiss_or_skip, write_store


class Farthest:
    """Finds the farthest entries instead of the nearest."""

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        found = torch.cdist(queries, self._keys).square().topk(k, dim=1)
        return found.values, found.indices


def test_a_search_of_ones_own_replaces_the_stores(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(20), tiny)
    opened = OpenStore(store)
    entries = opened.snapshot.index.entries
    keys = torch.from_numpy(entries.keys_of(torch.arange(entries.entries).numpy())).float()
    own = opened.searched_by(Farthest(keys), "farthest/1")
    query = keys[:3] + 0.01
    expected = torch.cdist(query, keys).topk(4, dim=1).indices
    found = own.search(query, 4)
    assert found.ids.tolist() == expected.tolist()
    assert found.tokens.tolist() == entries.values_of(expected).tolist()
    assert own.signature().endswith("|index:farthest/1")
    assert own.snapshot.number != opened.snapshot.number  # what is recorded for the one must not serve the other
    assert opened.search(query, 1).ids[:, 0].tolist() == [0, 1, 2]
    assert opened.signature().endswith("|index:exact")
    store.add(some_pairs(3, start=300), tiny)
    assert own.refresh()  # the search does not know the new entries
    assert own.signature().endswith("|index:exact")


def test_an_index_is_searched_with_other_settings_or_trained_elsewhere(tmp_path: Path) -> None:
    faiss_or_skip()
    store = write_store(tmp_path / "one", [clustered(3000)])
    few = write_store(tmp_path / "few", [clustered(3000)[::3]])
    assert OpenStore(store).with_settings(SearchSettings(2, 0)).signature().endswith("|index:exact")
    with pytest.raises(SettingError, match="has no index of the kind ivf-flat"):
        build_index(few, "ivf-flat", trained=store)
    build_index(store, "ivf-flat")
    wider = OpenStore(store).with_settings(SearchSettings(64, 0))
    assert re.search(r"\|index:ivf-flat@[0-9a-f]{8}/64$", wider.signature())
    saved = build_index(few, "ivf-flat", trained=store)
    assert saved.entries == 1000
    one, other = (StoreIndex(each).approximate for each in (store, few))
    assert one is not None
    assert other is not None
    assert torch.equal(one.decoded()[0], other.decoded()[0])  # the same centres
