"""IVFPQ on a GPU: it finds what FAISS finds on the CPU, with an index that FAISS trained and filled.

FAISS sums the distance of a query to a code from tables. Here the codes are decoded into keys once, and products of
whole keys give the same distances. Only the lists with the nearest centres count. The shapes of a search depend only on
the number of queries, and it waits for nothing, so it can be recorded. The same code runs on a CPU, where it is tested.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from knnmt import SearchSettings
from knnmt_lab.checks import check

_GROUP = 64  # keys compared as a group


class DecodedLists:
    """An index that is searched on a device, by the distances of its codes. Its entries must not change.

    index: one of FAISS, as `OpenStore(store).index.approximate`
    kind: its name in signatures
    distances: how many are held at once
    """

    def __init__(self, index: Any, device: torch.device | str, kind: str = "ivfpq", distances: int = 1 << 25) -> None:
        self._distances = distances
        self._kind = kind
        self.settings: SearchSettings = index.settings
        check(
            not self.settings.candidates and not self.settings.reach,
            f"only FAISS's own distances of all probed lists are found on a GPU, not {self.settings.in_words}",
        )
        centres, lists, keys = (each.to(device) for each in index.decoded())
        norms_sq = keys.square().sum(1)
        if index.entries.live is not None:
            norms_sq[~index.entries.live.to(device)] = float("inf")
        # The keys are padded to whole groups with keys at infinite distance.
        beyond = -len(keys) % _GROUP
        self._centres, self._centres_sq = centres, centres.square().sum(1)
        self._lists = functional.pad(lists, (0, beyond))
        self._keys = functional.pad(keys, (0, 0, 0, beyond))
        self._norms_sq = functional.pad(norms_sq, (0, beyond), value=float("inf"))

    @property
    def signature(self) -> str:
        """The signature of FAISS's own search, which finds the same."""
        return f"{self._kind}/{self.settings.signature}"

    def with_probes(self, probes: int) -> DecodedLists:
        """These lists, searched with another number of probes."""
        found = copy(self)
        found.settings = replace(self.settings, probes=probes)
        return found

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k nearest entries, as a `knnmt.Index` finds them, on the device."""
        keys = self._keys
        with torch.no_grad():
            queries = queries.to(keys.device, torch.float32)
            if not len(keys):
                return queries.new_full((len(queries), k), float("inf")), queries.new_full((len(queries), k), -1).long()
            parts = [self._of_some(some, k) for some in torch.split(queries, max(1, self._distances // len(keys)))]
            return torch.cat([distances_sq for distances_sq, _ in parts]), torch.cat([ids for _, ids in parts])

    def _of_some(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        rows, lists = len(queries), len(self._centres)
        probes = min(self.settings.probes, lists)
        to_centres = torch.addmm(self._centres_sq, queries, self._centres.T, alpha=-2)
        near = to_centres.topk(probes, dim=1, largest=False)[1]
        passed_over = torch.ones((rows, lists), dtype=torch.bool, device=queries.device).scatter_(1, near, False)
        scores = torch.addmm(self._norms_sq, queries, self._keys.T, alpha=-2)
        scores.masked_fill_(passed_over[:, self._lists], float("inf"))
        grouped = scores.view(rows, -1, _GROUP)  # the k smallest scores lie in the k groups with the smallest minima
        groups = grouped.amin(2).topk(min(k, grouped.shape[1]), dim=1, largest=False, sorted=False)[1]
        few = grouped.gather(1, groups[..., None].expand(-1, -1, _GROUP)).flatten(1)
        ids = (groups[..., None] * _GROUP + torch.arange(_GROUP, device=queries.device)).flatten(1)
        best, places = few.topk(min(k, few.shape[1]), dim=1, largest=False, sorted=True)
        ids = ids.gather(1, places).masked_fill_(best.isinf(), -1)
        distances_sq = (best + queries.square().sum(1, keepdim=True)).clamp_(min=0)
        missing = k - best.shape[1]
        distances_sq = functional.pad(distances_sq, (0, missing), value=float("inf"))
        return distances_sq, functional.pad(ids, (0, missing), value=-1)
