"""`OpenStore`: a datastore ready to be searched with a model's decoder states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from knnmt.compression.pca import Projection
from knnmt.config import FastConfig
from knnmt.datastore.sources import HeldSources
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.index.base import Found
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.calibration import Calibration
from knnmt.retrieval.duplicates import distinct_rows
from knnmt.retrieval.fast import SentenceStores
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.occurrences import SourceOccurrences
from knnmt.retrieval.settling import settle

_numbers = count()


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What of a store is in memory at a time. Whoever holds it keeps that there; no two have the same number."""

    number: int
    held: tuple[object, ...]


class OpenStore:
    """A store ready to be searched with a model's decoder states.

    values: (entries,) int32, the entries' tokens; all_counts: (entries,), how many entries each stands for after
        pruning, or None where nothing was merged
    """

    def __init__(self, store: Datastore, device: torch.device | str = "cpu", exact: bool = False) -> None:
        self.store = store
        self.sources = HeldSources(store)
        self.index = StoreIndex(store, device, exact)
        self.device = torch.device(device)
        self._take_arrays()

    def _take_arrays(self) -> None:
        entries = self.index.entries
        if (part := self.index.clustered) is not None and not part.clusters.settled:
            known = Calibration.of(self.store.path)
            settle(part, entries, None if known is None else known.temperature)
        projection = Projection.of(self.store)
        self._projection = None if projection is None else projection.to(self.device)
        self._occurrences: SourceOccurrences | None = None
        self.values = entries.values.to(self.device)
        self.all_counts = None if entries.counts is None or not len(entries.counts) else entries.counts.to(self.device)
        self.snapshot = Snapshot(next(_numbers), (self.values, self.all_counts, self._projection, *self.index.parts))

    def signature(self) -> str:
        """What a published score must say of the store."""
        manifest = self.store.manifest
        transforms = f"|made:{'+'.join(manifest.transforms)}" if manifest.transforms else ""
        entries = f"n:{manifest.live_entries}|d:{manifest.dim}{transforms}"
        return f"store:{self.store.path.name}|{entries}|index:{self.index.signature}"

    def refresh(self) -> bool:
        """Move to the newest generation of the store and its index; True if anything changed."""
        changed = self.index.refresh()
        if changed:
            self._take_arrays()
        return changed

    def project(self, representations: Tensor) -> Tensor:
        """Decoder states, (rows, dim), as this store's keys were made from them."""
        return representations.float() if self._projection is None else self._projection(representations)

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """The k nearest entries of projected queries, or all there are."""
        k = min(k, len(self.values))
        return self.neighbours(*self.nearest(queries, k)) if k else Neighbours.none(len(queries), 1, queries.device)

    def nearest(self, queries: Tensor, k: int) -> Found:
        """The same as squared distances and ids, of a k that there is. Equal rows are searched once.

        On a GPU every row is: to know which are equal, the host would have to wait for it.
        """
        distinct = distinct_rows(queries) if queries.device.type == "cpu" else None
        if distinct is None:
            return self.index.search(queries, k)
        distances_sq, ids = self.index.search(queries[distinct[0]], k)
        return distances_sq[distinct[1]], ids[distinct[1]]

    def neighbours(self, distances_sq: Tensor, ids: Tensor) -> Neighbours:
        """What a search found, with the entries' tokens."""
        if not len(self.values):
            return Neighbours(distances_sq, ids.clamp(min=0), ids)
        return Neighbours(distances_sq, self.values[ids.clamp(min=0)].long().masked_fill_(ids < 0, 0), ids)

    @property
    def occurrences(self) -> SourceOccurrences:
        """The store's source side, put in order when first asked for; refused unless the store was made for that."""
        if self._occurrences is None:
            require_for_fast(self.store)
            self._occurrences = SourceOccurrences(self.index.entries, self.device)
        return self._occurrences

    def sentence_stores(
        self, sources: Sequence[Sequence[int]], states: Sequence[Tensor], fast: FastConfig
    ) -> SentenceStores:
        """A small store for each of some sentences, from its tokens and the encoder's states of them, (tokens, dim)."""
        chosen = self.occurrences.entries_for(sources, states, fast)
        return SentenceStores(self.index.entries, chosen, self.device)

    def counts(self, ids: Tensor) -> Tensor | None:
        """How many entries each of these stands for, or None where nothing was merged."""
        return None if self.all_counts is None else self.all_counts[ids.clamp(min=0)]


def require_for_fast(store: Datastore) -> None:
    """Refuse a store that lacks what Fast kNN-MT needs."""
    if not store.manifest.for_fast:
        raise SettingError(
            f"{store.path}: Fast kNN-MT needs the source side of its sentences, which this store was built without. "
            "Build it again with --for-fast, or translate without --fast"
        )
