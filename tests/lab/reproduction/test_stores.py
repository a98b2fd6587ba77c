"""Stores of a domain: several prunings from one search are those of a search each; twins share their segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from knnmt import Datastore, matching
from knnmt.compression.pruning import prune
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.saved import read_saved
from knnmt.index.store_index import StoreIndex
from knnmt_lab.prunings import prune_known, prune_surest
from knnmt_lab.reproduction.stores import DomainStores
from support.datastore_pairs import some_pairs
from support.index_stores import faiss_or_skip
from support.made_stores import column, plain_search

faiss_or_skip()


def silent(_done: int, _total: int) -> None:
    pass


def test_stores_of_a_domain(tmp_path: Path, tiny: TransformerEngine) -> None:
    stores = DomainStores(tmp_path / "own", exact=frozenset("B"))
    assert not stores.exists(())
    stores.build(some_pairs(60), tiny, ("de", "en"), for_fast=False, progress=silent)
    stores.reduce(("pca16",))
    full = Datastore.open(stores.path(()))
    asked = []

    def search(queries, k):  # type: ignore[no-untyped-def]
        asked.append(k)
        return StoreIndex(full, exact=True).search(queries, k)

    stores.prune((), ["plac4", "prune1", "prune2", "prune5"], search)
    assert set(asked) == {6}
    for k in (1, 2, 5):
        alone = prune(full, tmp_path / f"alone{k}", StoreIndex(full, exact=True).search, k)
        found = Datastore.open(stores.path((f"prune{k}",)))
        assert found.manifest.transforms == alone.manifest.transforms
        for one, other in zip(found.segments, alone.segments, strict=True):
            assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in other.arrays)
    prune_known(full, tmp_path / "alone", StoreIndex(full, exact=True).search)
    known = Datastore.open(tmp_path / "alone")
    assert Datastore.open(stores.path(("plac4",))).manifest.entries == known.manifest.entries
    stores.index((), "A", silent)
    stores.index(("prune2",), "A", silent)
    pruned = StoreIndex(Datastore.open(stores.path(("prune2",), "A")))
    assert pruned.approximate is not None
    assert pruned.approximate.covered == pruned.entries.entries < full.entries
    keys = torch.from_numpy(pruned.entries.keys_of(np.arange(pruned.entries.entries)).astype(np.float32))
    nearest = pruned.search(keys, 1)[1][:, 0]
    assert float((nearest == torch.arange(len(keys))).float().mean()) > 0.8  # codes are approximate
    for block in ("A", "B"):
        stores.index(("pca16",), block, silent)
        assert stores.exists(("pca16",), block)
    saved = read_saved(Datastore.open(stores.path(("pca16",), "A")))
    assert saved is not None
    assert saved.kind == "ivfpq"
    assert read_saved(Datastore.open(stores.path(("pca16",), "B"))) is None
    assert read_saved(Datastore.open(stores.path(("pca16",)))) is None
    segment = next((stores.path(("pca16",)) / "segments").iterdir())
    assert segment.samefile(stores.path(("pca16",), "A") / "segments" / segment.name)


def test_entries_where_the_model_is_surest_go(tiny: TransformerEngine, tmp_path: Path) -> None:
    """Beside a plain search of every entry, also where some were removed."""
    store = Datastore.build(tmp_path / "s", some_pairs(25), tiny)
    store.remove(matching(origin=store.segments[0].pair(3).origin))
    keys, sure = column(store, "keys"), column(store, "log_probabilities").astype(np.float64)
    least = []
    for entry in range(len(keys)):
        distances_sq = ((keys.astype(np.float64) - keys[entry].astype(np.float64)) ** 2).sum(axis=1)
        distances_sq[entry] = -1
        least.append(min(sure[place] for place in distances_sq.argsort(kind="stable")[:4]))
    prune_surest(store, tmp_path / "new", plain_search(store), 3, 0.6)
    made = Datastore.open(tmp_path / "new")
    gone = sorted(range(len(keys)), key=lambda entry: -least[entry])[: len(keys) - round(0.6 * len(keys))]
    np.testing.assert_array_equal(column(made, "keys"), np.delete(keys, gone, axis=0))
    assert made.manifest.transforms == ("surest:k=3,keep=0.6",)
    assert list(made.pairs()) == list(store.pairs())
    assert list(made.verify()) == []
