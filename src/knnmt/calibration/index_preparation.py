"""Prepares search of a whole store: settings that fit it, and an index that is faithful and fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from knnmt.calibration.estimates import DEFAULT_K, Calibration, calibrate, estimate_settings
from knnmt.calibration.held_out import forced_queries, sample
from knnmt.calibration.index_choice import Candidate, Choice, Chooser, Target
from knnmt.compression.pca import KeyProjection
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.overlap import overlap
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine, State
from knnmt.errors import InputError
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.progress import Bars, no_bars


def prepare(
    store: Datastore,
    engine: Engine[State],
    target: Target | None = None,
    kinds: Sequence[str] | None = None,
    development: Sequence[SegmentPair] = (),
    first_good: bool = False,
    hear: Callable[[Candidate], None] = lambda _: None,
    bars: Bars = no_bars,
) -> Choice:
    """Estimate a store's settings and choose its index; both are saved with it.

    The queries are the states of development pairs, if some are given, without those whose source the store holds.
    Otherwise they are the store's own held-out entries. A reduced or pruned store keeps the settings of the store it
    was made from. `bars` show the progress of searching, training, adding and measuring.
    """
    if not store.manifest.live_entries:
        raise InputError(f"{store.path}: has no entries left to prepare a search of")
    if development and not (development := overlap(store, development).new):
        raise InputError(
            f"{store.path}: the store holds the source of every development pair; give text that it does not hold"
        )
    entries = Entries(store)
    projection = KeyProjection.of(store)
    held_out = (
        forced_queries(engine, entries, development, projection or (lambda states: states.float()))
        if development
        else sample(entries)
    )
    exact = ExactIndex(entries)
    with bars("searching exactly", "queries") as progress:
        true = held_out.search(exact, DEFAULT_K, progress)
    calibration = Calibration.of(store.path)
    if not store.manifest.transforms:
        calibration = calibrate(held_out, true, engine)
        if calibration is not None:
            calibration.save(store.path)
        estimate_settings(store, engine)
    temperature = calibration.temperature if calibration else max(float(true[0][:, 0].median()), 1e-6)
    chooser = Chooser(store, held_out, exact, true, temperature)
    return chooser.choose(target or Target(), kinds, first_good, hear, bars)
