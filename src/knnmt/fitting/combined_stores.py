"""`merge`, `split` and `shard_set` as `knnmt` shows them: the stores that they make are ready for use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from knnmt.config import DEFAULT_SEGMENTS, check
from knnmt.datastore.building import EntryProgress, no_progress
from knnmt.datastore.combining import merge_stores, split_store
from knnmt.datastore.manifest import Manifest
from knnmt.distributed.shard_set import ShardPlace, ShardSet, make_shard_set
from knnmt.distributed.sharded_store import SECONDS
from knnmt.engine.base import Engine
from knnmt.engine.checkpoint import NamedByStore
from knnmt.fitting.ready_store import Datastore
from knnmt.index.progress import Bars, no_bars


def merge(
    stores: Sequence[str | Path],
    path: str | Path,
    *,
    drop_duplicates: bool = False,
    make_index: bool = True,
    model: str | Path | Engine[Any] | None = None,
    progress: EntryProgress = no_progress,
    bars: Bars = no_bars,
) -> Datastore:
    """Make one store of several of the same model, as `knnmt merge` does. Killed at any moment, the same call goes on.

    No model runs over the text. What was removed from the stores does not go over; settings that were tuned do not.

    path: a directory that does not exist yet
    drop_duplicates: leave out units that came before, with the same source and target
    make_index: end by estimating settings that fit the store and making an index, unless it is searched by segment
    model: the one that the stores were built with, where it is not found by its name, or an engine that is loaded
    progress: is called with sentences and entries done
    bars: gives, for a description and a unit, a function to call with how much of the index is done, of how much
    """
    check(not isinstance(stores, str | Path), "stores: expected a list of stores to merge, got one path")
    merge_stores([Datastore.open(each) for each in stores], Path(path), drop_duplicates, progress)
    made = Datastore.open(path)
    if make_index:
        _make_ready([made], model, bars)
    return made


def split(
    store: str | Path,
    directory: str | Path,
    *,
    by: Literal["origin"] | None = None,
    pairs: int | None = None,
    make_index: bool = True,
    model: str | Path | Engine[Any] | None = None,
    progress: EntryProgress = no_progress,
    bars: Bars = no_bars,
) -> list[Datastore]:
    """Make stores of the parts of one, in a new directory, as `knnmt split` does.

    by: "origin" for a store of each file that units came from
    pairs: else most units of each store

    The others are as in `merge`.
    """
    check(by in (None, "origin"), f"by must be 'origin', got {by!r}; or give pairs, the most units of each store")
    opened = Datastore.open(store)
    places = split_store(opened, Path(directory), by == "origin", pairs, progress)
    made = [Datastore.open(place) for place in places]
    if make_index:
        _make_ready(made, model, bars)
    return made


def shard_set(
    shards: Sequence[str | Path],
    path: str | Path,
    *,
    cluster: str | None = None,
    seconds: float = SECONDS,
    model: str | Path | Engine[Any] | None = None,
) -> ShardSet:
    """Make a set of shards, as `knnmt shard-set` does: a store to translate with whose entries lie in others.

    Its settings are those of the largest shard, where that is on this machine; if it has none for search by segment,
    they are estimated from it.

    shards: stores of one model, in an order that stays; NODE:PATH for one on the disk of another machine of the cluster
    path: a directory that does not exist yet
    cluster: the address of a cluster of Ray, as in `Cluster`, which opens the shards; by default this process does
    seconds: that a shard has to answer; after that it is left out
    model: the one that the shards were built with, where it is not found by its name, or an engine that is loaded
    """
    found = ShardSet(tuple(ShardPlace.of(str(each)) for each in shards), cluster, seconds)
    largest = make_shard_set(found, Path(path))
    if largest is not None and not settings_by_segment(Path(path)):
        from knnmt.fitting.calibration import calibrate_by_segment
        from knnmt.retrieval.open_store import OpenStore

        store = Datastore.open(largest)
        snapshot = OpenStore(store, exact=True).snapshot
        if (
            estimated := calibrate_by_segment(snapshot, engine_of(store.manifest, model), DEFAULT_SEGMENTS)
        ) is not None:
            estimated.save(Path(path))
    return found


def settings_by_segment(store: Path) -> bool:
    """Whether settings for search by segment were estimated or tuned for a store."""
    from knnmt.fitting.calibration import Calibration
    from knnmt.retrieval.profiles import SEGMENTS, read_profiles

    return Calibration.of(store, by_segment=True) is not None or SEGMENTS in read_profiles(store)


def _make_ready(stores: Sequence[Datastore], model: str | Path | Engine[Any] | None, bars: Bars) -> None:
    """Settings, and an index where one is used. All are of one model."""
    from knnmt.fitting.index_preparation import make_ready  # which brings PyTorch

    engine = engine_of(stores[0].manifest, model)
    stores[0].require_engine(engine)
    for store in stores:
        make_ready(store, engine, bars)


def engine_of(manifest: Manifest, model: str | Path | Engine[Any] | None = None) -> Engine[Any]:
    """The model that a store was built with, loaded on the CPU unless it is loaded already."""
    from knnmt.engine.loading import load_engine

    if model is not None and not isinstance(model, str | Path):
        return model
    languages = manifest.source_language, manifest.target_language
    return load_engine(model or NamedByStore(manifest.model_name), "cpu", None, *languages)
