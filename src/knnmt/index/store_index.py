"""`StoreIndex`: search over a store that lives, which is what the rest of knnmt searches with.

What the saved index covers is searched with it, entries newer than it exactly, and the results are merged.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreError, DatastoreVersionError, MissingDependencyError
from knnmt.index.base import Found, Index, merge_top_k, nothing
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.on_device import DeviceIndex
from knnmt.index.saved import MISSING, SavedIndex, open_saved, read_saved

Part = ExactIndex | DeviceIndex
Taken = tuple[SavedIndex | None, FaissIndex | None, MissingDependencyError | None]
_MANY = 20_000  # entries from which exact search is felt
_CLUSTERED_FROM = 500_000  # entries from which clustered search on a GPU is faster than exact search


class StoreIndex:
    """Search over what a store holds, removed entries left out. It shows one generation until `refresh`.

    exact: pass over a saved index, and on a GPU search large stores exactly, too
    entries: the snapshot that entry ids belong to
    saved: the record of the store's index, used or not
    """

    def __init__(self, store: Datastore, device: torch.device | str = "cpu", exact: bool = False) -> None:
        self._store = store
        self._device = torch.device(device)
        self._exact = exact
        self.entries = Entries(store)
        self.saved: SavedIndex | None = None
        self._index: FaissIndex | None = None
        self._missing: MissingDependencyError | None = None
        self._damaged: DatastoreError | None = None
        self._tail: list[Part] = []
        self._show(self.entries)

    def search(self, queries: Tensor, k: int) -> Found:
        """As in `base.Index`; the results are where the queries are."""
        found = [part.search(queries, k) for part in self.parts]
        distances_sq, ids = found[0] if len(found) == 1 else merge_top_k(found or [nothing(queries)], k)
        return distances_sq.to(queries.device), ids.to(queries.device)

    @property
    def parts(self) -> list[Index]:
        """What is searched; no entry is in two of them."""
        return [*([self._index] if self._index else []), *self._tail]

    def refresh(self) -> bool:
        """Move to the store's newest generation and index; True if anything changed. What stays is not read again."""
        before = self.entries.records, self.saved
        self._move()
        if self._stale:  # or made of a generation that was published just after we looked
            self._move()
        return before != (self.entries.records, self.saved)

    def _move(self) -> None:
        self._store.refresh()
        # By what it is made of: a store that was made anew at the same place may have the same generation.
        moved = self.entries.records != [segment.record for segment in self._store.segments]
        self._show(Entries(self._store, self.entries) if moved else self.entries)

    def _show(self, entries: Entries) -> None:
        """Take up a snapshot and the newest index, and search exactly what that leaves; an error changes nothing."""
        saved, index, missing = self._newest_index(entries)
        covered = index.covered if index else 0
        same = entries.first_entry(entries.segments_shared_with(self.entries))
        kept = [part for part in self._tail if covered == self._covered and part.last <= same]
        if index is not None and saved is not None:
            index.entries, index.settings = entries, saved.settings
        self._tail = extended(kept, entries, covered, self._device, not self._exact)
        self.entries, self.saved, self._index, self._missing = entries, saved, index, missing

    def _newest_index(self, entries: Entries) -> Taken:
        """The record of the store's index, the index if it can be used, and the package it lacks."""
        self._damaged = None
        try:
            saved = None if self._exact or self._device.type != "cpu" else read_saved(self._store)
        except (DatastoreDamagedError, DatastoreVersionError) as error:  # the store itself is sound
            self._damaged = error
            saved = None
        if saved is None or saved.stored is None or not saved.fits(entries.segment_names()):
            return saved, None, None
        if self._index is not None and self.saved is not None and saved.stored == self.saved.stored:
            return saved, self._index, None
        try:
            return saved, open_saved(self._store, saved, entries), None
        except MissingDependencyError as error:
            return saved, None, error
        except DatastoreDamagedError:
            if read_saved(self._store) == saved:
                raise
            return self._newest_index(entries)  # another process has put a newer one in its place

    @property
    def _covered(self) -> int:
        return self._index.covered if self._index else 0

    @property
    def _stale(self) -> bool:
        return self.saved is not None and not self.saved.fits(self.entries.segment_names())

    @property
    def approximate(self) -> FaissIndex | None:
        """The saved index that most entries are searched with, or None where all are searched exactly."""
        return self._index

    @property
    def clustered(self) -> DeviceIndex | None:
        """The part of the entries that is searched in clusters on a GPU, if there is one."""
        first = self._tail[0] if self._tail else None
        return first if isinstance(first, DeviceIndex) and first.clustered else None

    @property
    def description(self) -> str:
        """One line for people: how it searches, and how much."""
        if (part := self.clustered) is not None:
            newer = self.entries.entries - part.last
            tail = f"; exact for {newer:,} newer ones" if newer else ""
            return f"clusters, {part.clusters.settings.in_words}, {part.last:,} entries{tail}"
        if self._index is None or self.saved is None:
            return f"exact, {self.entries.entries:,} entries"
        newer = self.entries.entries - self._covered
        tail = f"; exact for {newer:,} newer ones" if newer else ""
        return f"{self.saved.kind}, {self._index.settings.in_words}, {self._covered:,} entries{tail}"

    @property
    def signature(self) -> str:
        """What a published score must say of the search."""
        if (part := self.clustered) is not None:
            return f"clusters/{part.clusters.settings.signature}"
        if self._index is None or self.saved is None:
            return "exact"
        return f"{self.saved.kind}/{self._index.settings.signature}"

    @property
    def hint(self) -> str | None:
        """What would make the search better, or None."""
        return self.hint_for(self._store.path)

    @property
    def lacks_faiss(self) -> bool:
        """Whether FAISS would make the search better, and is not installed."""
        many = self._index is None and self.entries.entries > _MANY
        return self._missing is not None or (many and find_spec("faiss") is None)

    def hint_for(self, path: Path) -> str | None:
        """The same for a store that will be in another place."""
        if self._exact or self._device.type != "cpu":
            return None
        command = f"`knnmt index {path}`"
        if self._damaged is not None:
            return f"searched exactly, for its index cannot be used: {self._damaged}"
        if self._missing is not None:
            return f"searched exactly, for {self._missing}"
        if self._stale:
            return f"searched exactly, for the index is of an earlier state of the store; {command} builds it again"
        if self.lacks_faiss:
            return (
                "every key is looked at in every step, for FAISS is not installed: `pip install 'knnmt[faiss]'` and "
                f"then {command} make it many times as fast"
            )
        chosen = self.saved is not None and self.saved.stored is None and MISSING not in self.saved.fidelity
        known = self.saved.entries if self.saved and chosen else self._covered
        if self.entries.entries <= max(known + _MANY, 2 * known if self._index is None else 0):
            return None
        if self._index is None:
            return f"searched exactly; {command} makes it faster"
        return f"entries newer than the index are searched exactly; {command} takes them in"


def extended(
    parts: list[Part], entries: Entries, first: int, device: torch.device, may_cluster: bool = True
) -> list[Part]:
    """Searches over all entries from `first` on, made from earlier ones that begin there: exact, but on a GPU clustered
    where there are many.

    New entries become a part of their own, and a part is joined with the one before once it is half as large: so small
    additions to a large store are cheap, and there are few parts.
    """
    parts = [part.at(entries) for part in parts]
    last = parts[-1].last if parts else first
    if last < entries.entries:
        parts.append(_part(entries, device, last, entries.entries, may_cluster))
    while len(parts) > 1 and 2 * _size(parts[-1]) >= _size(parts[-2]):
        parts[-2:] = [_part(entries, device, parts[-2].first, parts[-1].last, may_cluster)]
    return parts


def _part(entries: Entries, device: torch.device, first: int, last: int, may_cluster: bool) -> Part:
    if device.type == "cpu":
        return ExactIndex(entries, first, last)
    return DeviceIndex(entries, device, first, last, clustered=may_cluster and last - first >= _CLUSTERED_FROM)


def _size(part: Part) -> int:
    return part.last - part.first
