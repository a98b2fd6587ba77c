"""`StoreIndex`: search over a store that changes; the rest of knnmt uses this.

The saved index searches the entries that it covers, an exact search covers newer entries, and the results are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from threading import Lock

import torch
from torch import Tensor

from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreError, DatastoreVersionError, MissingDependencyError, quoted
from knnmt.index.base import Index, SearchResult, merge_top_k, nothing
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import BUILT_IN
from knnmt.index.on_device import DeviceIndex
from knnmt.index.saved import MISSING, SavedIndex, open_saved, read_saved

IndexPart = ExactIndex | DeviceIndex
NOTICEABLE_ENTRIES = 20_000
_MIN_CLUSTERED_ENTRIES = 500_000  # entries from which clustered search on a GPU is faster than exact search


@dataclass(frozen=True, slots=True, eq=False)
class IndexSnapshot:
    """Search over a snapshot of a store, without removed entries. Threads may share it.

    store: the generation of the snapshot; entries: the entries that ids refer to
    tail: searches of the entries that the saved index does not hold
    saved: the record of the store's index, used or not; approximate: the index itself, None if all search is
        exact; missing: the package that it lacks; damaged: why its record cannot be read
    advises: whether a saved index would be used at all
    own: a search that replaces all of these, with its name in signatures
    noticeable_entries: exact search of more takes noticeable time
    """

    store: Datastore
    entries: Entries
    tail: tuple[IndexPart, ...]
    saved: SavedIndex | None = None
    approximate: FaissIndex | None = None
    missing: MissingDependencyError | None = None
    damaged: DatastoreError | None = None
    advises: bool = True
    own: tuple[Index, str] | None = None
    noticeable_entries: int = NOTICEABLE_ENTRIES

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """As in `base.Index`; the results are where the queries are."""
        found = [part.search(queries, k) for part in self.parts]
        distances_sq, ids = found[0] if len(found) == 1 else merge_top_k(found or [nothing(queries)], k)
        return distances_sq.to(queries.device), ids.to(queries.device)

    @property
    def parts(self) -> list[Index]:
        """The searches of all parts; no entry is in two of them."""
        if self.own is not None:
            return [self.own[0]]
        return [*([self.approximate] if self.approximate else []), *self.tail]

    @property
    def covered(self) -> int:
        """The number of entries that the saved index holds."""
        return self.approximate.covered if self.approximate else 0

    @property
    def stale(self) -> bool:
        """Whether the saved index is of another state of the store."""
        return self.saved is not None and not self.saved.fits(self.entries.segment_names())

    @property
    def clustered(self) -> DeviceIndex | None:
        """The clustered search on a GPU, if there is one."""
        first = self.tail[0] if self.tail else None
        return first if isinstance(first, DeviceIndex) and first.clustered else None

    @property
    def description(self) -> str:
        """One readable line: the kind of search, and the number of entries."""
        if self.own is not None:
            return f"{self.own[1]}, {self.entries.entries:,} entries"
        if (part := self.clustered) is not None:
            newer = self.entries.entries - part.last
            tail = f"; exact for {newer:,} newer ones" if newer else ""
            return f"clusters, {part.clusters.settings.in_words}, {part.last:,} entries{tail}"
        if self.approximate is None or self.saved is None:
            return f"exact, {self.entries.entries:,} entries"
        newer = self.entries.entries - self.covered
        tail = f"; exact for {newer:,} newer ones" if newer else ""
        return f"{self.saved.kind}, {self.approximate.settings.in_words}, {self.covered:,} entries{tail}"

    @property
    def signature(self) -> str:
        """The part of a published score's signature that describes the search."""
        if self.own is not None:
            return self.own[1]
        if (part := self.clustered) is not None:
            return f"clusters/{part.clusters.settings.signature}"
        if self.approximate is None or self.saved is None:
            return "exact"
        kind = self.saved.kind
        if kind not in BUILT_IN and self.saved.stored is not None:  # other custom kinds may have the same name
            kind = f"{kind}@{self.saved.stored.sha256[:8]}"
        return f"{kind}/{self.approximate.settings.signature}"

    @property
    def hint(self) -> str | None:
        """Advice that would improve the search, or None."""
        if not self.advises:
            return None
        command = f"`knnmt index {quoted(self.store.path)}`"
        if self.damaged is not None:
            return f"searched exactly, because its index cannot be used: {self.damaged}"
        if self.missing is not None:
            return f"searched exactly, because {self.missing}"
        if self.stale and self.entries.entries > self.noticeable_entries:
            return (
                f"searched exactly, because the index belongs to an earlier state of the store; {command} "
                f"builds it again"
            )
        if self.lacks_faiss:
            return (
                "every key is compared in every step, because FAISS is not installed: `pip install 'knnmt[faiss]'` "
                f"and then {command} make the search much faster"
            )
        chosen = self.saved is not None and self.saved.stored is None and MISSING not in self.saved.fidelity
        known = self.saved.entries if self.saved and chosen else self.covered
        if self.entries.entries <= max(known + self.noticeable_entries, 2 * known if self.approximate is None else 0):
            return None
        if self.approximate is None:
            return f"searched exactly; {command} makes it faster"
        return f"entries newer than the index are searched exactly; {command} adds them to the index"

    @property
    def lacks_faiss(self) -> bool:
        """Whether FAISS would improve the search, but is not installed."""
        many = self.approximate is None and self.entries.entries > self.noticeable_entries
        return self.missing is not None or (many and find_spec("faiss") is None)


class StoreIndex:
    """Search over a store. It shows one generation until `refresh`.

    exact: ignore a saved index, and on a GPU search large stores exactly, too
    noticeable_entries: hints are given from this number of entries on
    snapshot: the current snapshot; it is replaced in one step, and holders of the one before can go on with that
    """

    def __init__(
        self,
        store: Datastore,
        device: torch.device | str = "cpu",
        exact: bool = False,
        noticeable_entries: int = NOTICEABLE_ENTRIES,
    ) -> None:
        self._store = store
        self._noticeable_entries = noticeable_entries
        self._device = torch.device(device)
        self._exact = exact
        self._refreshing = Lock()
        self.snapshot = self._newest(store.pinned(), None)

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """As in `base.Index`; the results are where the queries are."""
        return self.snapshot.search(queries, k)

    def refresh(self) -> bool:
        """Move to the store's newest generation and index; True if anything changed. Unchanged parts are not reread.

        An error changes nothing.
        """
        with self._refreshing:
            before = self.snapshot
            now = self._move(before)
            if now.stale:  # the index may belong to a generation published since
                now = self._move(now)
            self.snapshot = now
            return now is not before

    def _move(self, before: IndexSnapshot) -> IndexSnapshot:
        self._store.refresh()
        return self._newest(self._store.pinned(), before)

    def _newest(self, store: Datastore, before: IndexSnapshot | None) -> IndexSnapshot:
        """A generation with the newest index, and exact search of the entries that the index does not cover."""
        # Compare the segments: a store made anew at the same place may have the same generation number.
        records = [segment.record for segment in store.segments]
        same = before is not None and before.entries.records == records
        advises = not self._exact and self._device.type == "cpu"
        damaged: DatastoreError | None = None
        try:
            saved = read_saved(store) if advises else None
        except (DatastoreDamagedError, DatastoreVersionError) as error:  # the store itself is sound
            saved, damaged = None, error
        if before and same and saved == before.saved and str(damaged) == str(before.damaged):
            return before
        entries = before.entries if before and same else Entries(store, before.entries if before else None)
        saved, index, missing = _index_of(store, saved, entries, before)
        kept: list[IndexPart] = []
        covered = index.covered if index else 0
        if before is not None and covered == before.covered:
            shared = entries.entries_shared_with(before.entries)
            kept = [part for part in before.tail if part.last <= shared]
        tail = extended(kept, entries, covered, self._device, not self._exact)
        return IndexSnapshot(
            store,
            entries,
            tuple(tail),
            saved,
            index,
            missing,
            damaged,
            advises,
            noticeable_entries=self._noticeable_entries,
        )

    # What it shows now ------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Entries:
        return self.snapshot.entries

    @property
    def saved(self) -> SavedIndex | None:
        return self.snapshot.saved

    @property
    def approximate(self) -> FaissIndex | None:
        return self.snapshot.approximate

    @property
    def clustered(self) -> DeviceIndex | None:
        return self.snapshot.clustered

    @property
    def description(self) -> str:
        return self.snapshot.description

    @property
    def signature(self) -> str:
        return self.snapshot.signature

    @property
    def hint(self) -> str | None:
        return self.snapshot.hint


def _index_of(
    store: Datastore, saved: SavedIndex | None, entries: Entries, before: IndexSnapshot | None
) -> tuple[SavedIndex | None, FaissIndex | None, MissingDependencyError | None]:
    """The record of the store's index, the index if it can be used, and the package it lacks."""
    if saved is None or saved.stored is None or not saved.fits(entries.segment_names()):
        return saved, None, None
    if before and before.approximate and before.saved and saved.stored == before.saved.stored:
        return saved, before.approximate.at(entries, saved.settings), None
    try:
        return saved, open_saved(store, saved, entries), None
    except MissingDependencyError as error:
        return saved, None, error
    except DatastoreDamagedError:
        newer = read_saved(store)
        if newer == saved:
            raise
        return _index_of(store, newer, entries, before)  # another process has put a newer one in its place


def extended(
    parts: list[IndexPart], entries: Entries, first: int, device: torch.device, may_cluster: bool = True
) -> list[IndexPart]:
    """Searches over all entries from `first` on, made from earlier searches that begin there. They are exact, but on a
    GPU clustered if there are many entries.

    New entries become a separate part, and a part is joined with the one before once it is half as large. So small
    additions to a large store are cheap, and there are few parts.
    """
    parts = [part.at(entries) for part in parts]
    last = parts[-1].last if parts else first
    if last < entries.entries:
        parts.append(_part(entries, device, last, entries.entries, may_cluster))
    while len(parts) > 1 and 2 * _size(parts[-1]) >= _size(parts[-2]):
        parts[-2:] = [_part(entries, device, parts[-2].first, parts[-1].last, may_cluster)]
    return parts


def _part(entries: Entries, device: torch.device, first: int, last: int, may_cluster: bool) -> IndexPart:
    if device.type == "cpu":
        return ExactIndex(entries, first, last)
    return DeviceIndex(entries, device, first, last, clustered=may_cluster and last - first >= _MIN_CLUSTERED_ENTRIES)


def _size(part: IndexPart) -> int:
    return part.last - part.first
