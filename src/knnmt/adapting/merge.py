"""`merge`, `split` and `shard_set`: stores from other stores, with settings that fit them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from knnmt.calibration.estimates import Calibration, calibrate_by_segment, estimate_settings
from knnmt.config import DEFAULT_SEGMENTS, check
from knnmt.datastore.building import EntryProgress
from knnmt.datastore.combining import merge_stores, split_store
from knnmt.datastore.manifest import Manifest
from knnmt.datastore.store import Datastore
from knnmt.distributed.shard_set import ShardPlace, ShardSet, make_shard_set
from knnmt.distributed.sharded_store import SECONDS
from knnmt.engine.base import Engine
from knnmt.engine.checkpoint import NamedByStore
from knnmt.engine.loading import load_engine
from knnmt.progress import ignore
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.profiles import SEGMENTS, read_profiles


def merge(
    stores: Sequence[str | Path],
    path: str | Path,
    *,
    drop_duplicates: bool = False,
    estimate: bool = True,
    model: str | Path | Engine[Any] | None = None,
    threads: int | None = None,
    progress: EntryProgress = ignore,
) -> Datastore:
    """Make one store from several of the same model, as `knnmt merge` does. If it is killed, the same call resumes.

    No model runs over the text. Removed sentences and tuned settings are not taken over.

    path: a directory that does not exist yet
    drop_duplicates: leave out units whose source and target came before
    estimate: estimate settings that fit the store
    model: the stores' model, if it is not found by its name, or a loaded engine
    progress: is called with sentences and entries done
    """
    check(not isinstance(stores, str | Path), "stores: expected a list of stores to merge, got one path")
    merge_stores([Datastore.open(each) for each in stores], Path(path), drop_duplicates, progress)
    merged = Datastore.open(path)
    if estimate:
        _estimate([merged], model, threads)
    return merged


def split(
    store: str | Path,
    directory: str | Path,
    *,
    by: Literal["origin"] | None = None,
    pairs: int | None = None,
    estimate: bool = True,
    model: str | Path | Engine[Any] | None = None,
    threads: int | None = None,
    progress: EntryProgress = ignore,
) -> list[Datastore]:
    """Make several stores from one, in a new directory, as `knnmt split` does.

    by: "origin" for one store per file that units came from
    pairs: otherwise, at most this many units in each store

    The others are as in `merge`.
    """
    check(
        by in (None, "origin"),
        f"--by must be origin, got {by!r}; or give --pairs, the largest number of units in each store",
    )
    opened = Datastore.open(store)
    places = split_store(opened, Path(directory), by == "origin", pairs, progress)
    parts = [Datastore.open(place) for place in places]
    if estimate:
        _estimate(parts, model, threads)
    return parts


def shard_set(
    shards: Sequence[str | Path],
    path: str | Path,
    *,
    cluster: str | None = None,
    seconds: float = SECONDS,
    model: str | Path | Engine[Any] | None = None,
) -> ShardSet:
    """Make a set of shards, as `knnmt shard-set` does: a store whose entries are in other stores.

    Its settings are those of the largest shard, if it is on this machine. If that has none for search by segment, they
    are estimated from it.

    shards: stores of one model, in a fixed order; NODE:PATH for one on the disk of another machine of the cluster
    path: a directory that does not exist yet
    cluster: the address of a Ray cluster that opens the shards, as in `Cluster`; by default this process opens them
    seconds: a shard that takes longer to answer is left out
    model: the shards' model, if it is not found by its name, or a loaded engine
    """
    places = ShardSet(tuple(ShardPlace.of(str(each)) for each in shards), cluster, seconds)
    largest = make_shard_set(places, Path(path))
    if largest is not None and not settings_by_segment(Path(path)):
        store = Datastore.open(largest)
        snapshot, engine = OpenStore(store, exact=True).snapshot, engine_of(store.manifest, model)
        if (estimated := calibrate_by_segment(snapshot, engine, DEFAULT_SEGMENTS)) is not None:
            estimated.save(Path(path))
    return places


def settings_by_segment(path: Path) -> bool:
    """Whether settings for search by segment were estimated or tuned for a store."""
    return Calibration.of(path, by_segment=True) is not None or SEGMENTS in read_profiles(path)


def _estimate(stores: Sequence[Datastore], model: str | Path | Engine[Any] | None, threads: int | None) -> None:
    """Estimate the settings of new stores. All of them are of one model."""
    if threads is not None:
        torch.set_num_threads(threads)
    engine = engine_of(stores[0].manifest, model)
    stores[0].require_engine(engine)
    for store in stores:
        estimate_settings(store, engine)


def engine_of(manifest: Manifest, model: str | Path | Engine[Any] | None = None) -> Engine[Any]:
    """The model that a store was built with; it is loaded on the CPU unless it is already loaded."""
    if model is not None and not isinstance(model, str | Path):
        return model
    languages = manifest.source_language, manifest.target_language
    return load_engine(model or NamedByStore(manifest.model_name), "cpu", None, *languages)
