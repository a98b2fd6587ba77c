"""`DeviceIndex`: search on a GPU over entries of a store, exact or clustered."""

from __future__ import annotations

import threading
from typing import TypeVar

import torch
from torch import Tensor

from knnmt import timing
from knnmt.index.base import SearchResult
from knnmt.index.clusters import Clusters
from knnmt.index.entries import Entries, shared_tensor
from knnmt.index.resident import LOADED, ResidentKeys

Loaded = TypeVar("Loaded", ResidentKeys, Clusters)
_loading = threading.RLock()  # without it, threads that start together would each load the same keys


class DeviceIndex:
    """Search on a device over the entries of a store from `first` to before `last`. The first search loads them.

    clustered: search in tiles, with the settings of `clusters`; else compare every key
    """

    def __init__(
        self,
        entries: Entries,
        device: torch.device | str,
        first: int = 0,
        last: int | None = None,
        clustered: bool = False,
    ) -> None:
        self.entries = entries
        self.device = torch.device(device)
        self.first = first
        self.last = entries.entries if last is None else last
        self.clustered = clustered
        self._keys: ResidentKeys | None = None
        self._clusters: Clusters | None = None

    def at(self, entries: Entries) -> DeviceIndex:
        """The same search over a later snapshot. Both share the keys, so entries removed since disappear from both.

        Entries from `first` to before `last` must be the same ones in both.
        """
        later = DeviceIndex(entries, self.device, self.first, self.last, self.clustered)
        later._keys, later._clusters = self._keys, self._clusters
        if entries.live is not None or self.entries.live is not None:
            for each in (self._keys, self._clusters):
                if each is not None:
                    later._mask(each)
        return later

    @property
    def keys(self) -> ResidentKeys:
        """The keys on the device, for exact search."""
        with _loading:
            if self._keys is None:
                blocks = (shared_tensor(keys) for _, keys in self.entries.blocks(LOADED, self.first, self.last))
                count = max(0, self.last - self.first)
                with torch.inference_mode(False), torch.no_grad():  # so that removed keys can be masked later
                    shape = (count, self.entries.dim, self.entries.key_dtype)
                    keys = ResidentKeys(blocks, *shape, self.device, self.entries.require_sound)
                self._keys = self._ready(keys)
            return self._keys

    @property
    def clusters(self) -> Clusters:
        """The tiles over the keys, for clustered search."""
        with _loading:
            if self._clusters is None:
                with torch.inference_mode(False), torch.no_grad():
                    clusters = Clusters(self.keys)
                self._clusters = self._ready(clusters)
            return self._clusters

    @property
    def loaded(self) -> bool:
        """Whether the keys are on the device already."""
        return self._keys is not None

    def exactly(self) -> DeviceIndex:
        """Exact search over the same keys."""
        exact = DeviceIndex(self.entries, self.device, self.first, self.last)
        exact._keys = self.keys
        return exact

    def give_clusters_up(self) -> None:
        """Compare every key from now on."""
        self.clustered, self._clusters = False, None

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """As in `base.Index`, on the device."""
        with timing.stage("search"), torch.no_grad():  # not inference mode: a gate is trained on the distances
            searched = self.clusters if self.clustered else self.keys
            distances_sq, ids = searched.search(queries.to(self.device, torch.float32), k)
            return distances_sq, torch.where(ids < 0, ids, ids + self.first) if self.first else ids

    def _ready(self, loaded: Loaded) -> Loaded:
        """Mask removed keys, and wait until all is done, because other threads search on their own streams."""
        self._mask(loaded)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return loaded

    def _mask(self, each: ResidentKeys | Clusters) -> None:
        live = self.entries.live
        each.mask(torch.ones(each.count, dtype=torch.bool) if live is None else live[self.first : self.last])
