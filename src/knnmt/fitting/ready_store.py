"""`Datastore` as `knnmt` shows it: what it builds is ready for use, as what `knnmt build` makes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import store
from knnmt.datastore.building import BuildConfig, EntryProgress, no_progress
from knnmt.engine.base import Engine, State


class Datastore(store.Datastore):
    """A datastore on disk, open at one generation."""

    @classmethod
    def build(
        cls,
        path: str | Path,
        pairs: Iterable[SegmentPair],
        engine: Engine[State],
        config: BuildConfig | None = None,
        progress: EntryProgress = no_progress,
        make_index: bool = True,
    ) -> Self:
        """Build a new store from pairs and open it; `knnmt.datastore.building` says how, and counts what it drops.

        make_index: end by estimating settings that fit the store and making an index of it, as `knnmt build` does
        """
        made = super().build(path, pairs, engine, config, progress)
        if make_index:
            from knnmt.fitting.index_preparation import prepare  # which brings PyTorch

            prepare(made, engine, first_good=True)
        return made
