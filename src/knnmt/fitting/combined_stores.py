"""`merge` and `split` as `knnmt` shows them: the stores that they make are ready for use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from knnmt.config import check
from knnmt.datastore.building import EntryProgress, no_progress
from knnmt.datastore.combining import merge_stores, split_store
from knnmt.datastore.manifest import Manifest
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
