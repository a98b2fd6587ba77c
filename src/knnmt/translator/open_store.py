"""`open_store`: opens any store for searching, wherever its entries are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from knnmt.calibration.index_choice import choose_probes
from knnmt.datastore.store import Datastore
from knnmt.distributed.shard_set import ShardSet
from knnmt.distributed.sharded_store import ShardedStore
from knnmt.engine.base import Engine
from knnmt.retrieval.open_store import OpenStore
from knnmt.segments.covering import SourceIndex


def open_store(
    store: str | Path | Datastore,
    engine: Engine[Any] | None = None,
    *,
    device: torch.device | str | None = None,
    exact: bool = False,
    chooser: type[SourceIndex] = SourceIndex,
) -> OpenStore:
    """Open a store for searching. The entries of a set of shards stay in the shards.

    Args:
        engine: refuse a store that was built with another model.
        device: where it is searched; by default where the engine computes, or a CPU.
        exact: search every key, even if the store has an index.
        chooser: chooses segments for a source.
    """
    datastore = store if isinstance(store, Datastore) else Datastore.open(store, engine)
    if device is None:
        device = "cpu" if engine is None else engine.device
    if (shards := ShardSet.read(datastore.path)) is not None:
        return ShardedStore(datastore, shards.opened(datastore.path), device, shards.seconds)
    return OpenStore(datastore, device, exact, choose_probes, chooser)
