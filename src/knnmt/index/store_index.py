"""`StoreIndex`: search over a store that lives, which is what the rest of knnmt searches with."""

from __future__ import annotations

import torch
from torch import Tensor

from knnmt.datastore.store import Datastore
from knnmt.index.base import Found, merge_top_k
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex

_MANY = 20_000  # entries from which exact search is felt


class StoreIndex:
    """Search over what a store holds, removed entries left out. It shows one generation until `refresh`.

    entries: the snapshot that entry ids belong to
    """

    def __init__(self, store: Datastore, device: torch.device | str = "cpu", exact: bool = False) -> None:
        self._store = store
        self._device = torch.device(device)
        self._always_exact = exact or self._device.type != "cpu"
        self.entries = Entries(store)
        self._tail = extended([], self.entries, 0, self._device)

    def search(self, queries: Tensor, k: int) -> Found:
        """As in `base.Index`; the results are where the queries are."""
        found = [part.search(queries, k) for part in self._tail]
        if not found:
            found = [(queries.new_empty(len(queries), 0), queries.new_empty(len(queries), 0, dtype=torch.long))]
        distances_sq, ids = merge_top_k(found, k)
        return distances_sq.to(queries.device), ids.to(queries.device)

    def refresh(self) -> bool:
        """Move to the store's newest generation; True if anything changed. Entries that stay are not read again."""
        self._store.refresh()
        if self._store.manifest.generation == self.entries.generation:
            return False
        earlier, self.entries = self.entries, Entries(self._store, self.entries)
        same = self.entries.first_entry(self.entries.segments_shared_with(earlier))
        self._tail = extended([part for part in self._tail if part.last <= same], self.entries, 0, self._device)
        return True

    @property
    def description(self) -> str:
        """One line for people: how it searches, and how much."""
        return f"exact, {self.entries.entries:,} entries"

    @property
    def hint(self) -> str | None:
        """What would make the search better, or None."""
        if not self._always_exact and self.entries.entries > _MANY:
            return f"searched exactly; `knnmt index {self._store.path}` makes it faster"
        return None


def extended(parts: list[ExactIndex], entries: Entries, first: int, device: torch.device) -> list[ExactIndex]:
    """Exact searches over all entries from `first`, made from earlier ones that begin there.

    New entries become a part of their own, and a part is joined with the one before once it is half as large: so small
    additions to a large store are cheap, and there are few parts.
    """
    parts = [part.at(entries) for part in parts]
    last = parts[-1].last if parts else first
    if last < entries.entries:
        parts.append(ExactIndex(entries, device, last))
    while len(parts) > 1 and 2 * _size(parts[-1]) >= _size(parts[-2]):
        joined = ExactIndex(entries, device, parts[-2].first, parts[-1].last)
        parts[-2:] = [joined]
    return parts


def _size(part: ExactIndex) -> int:
    return part.last - part.first
