"""IVFPQ on a GPU: it finds what FAISS finds on the CPU, with an index that FAISS trained and filled.

FAISS sums the distance of a query to a code from tables. Here the codes are decoded into keys once, and products of
whole keys give the same distances. Only the lists with the nearest centres count. The shapes of a search depend only on
the number of queries, and it waits for nothing, so it can be recorded. The same code runs on a CPU, where it is tested.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch.nn import functional

from knnmt import timing
from knnmt.index.base import Found, nearest_first, nothing
from knnmt.index.centres import nearest_centres
from knnmt.index.faiss_index import FaissIndex
from knnmt_lab.checks import check

_SCORES = 1 << 25  # distances held at once
_GROUP = 64  # keys compared as a group


class DecodedLists(FaissIndex):
    """An index that is searched on a device, by the distances of its codes. Its entries must not change."""

    @classmethod
    def of(cls, index: FaissIndex, device: torch.device | str) -> DecodedLists:
        """Decode the codes of an index into keys on a device."""
        settings = index.settings
        check(
            not settings.candidates and not settings.reach,
            f"only FAISS's own distances of all probed lists are found on a GPU, not {settings.in_words}",
        )
        found = cls.__new__(cls)
        vars(found).update(vars(copy(index)))
        centres, lists, keys = (each.to(device) for each in index.decoded())
        live = index.entries.live
        norms_sq = keys.square().sum(1)
        if live is not None:
            norms_sq[~live.to(device)] = float("inf")
        # The keys are padded to whole groups with keys at infinite distance.
        beyond = -len(keys) % _GROUP
        found._centres_there, found._centres_sq_there = centres, centres.square().sum(1)
        found._lists_there = functional.pad(lists, (0, beyond))
        found._keys_there = functional.pad(keys, (0, 0, 0, beyond))
        found._norms_sq = functional.pad(norms_sq, (0, beyond), value=float("inf"))
        return found

    _centres_there: Tensor
    _centres_sq_there: Tensor
    _lists_there: Tensor
    _keys_there: Tensor
    _norms_sq: Tensor

    def search(self, queries: Tensor, k: int) -> Found:
        """As in `base.Index`, on the device."""
        keys = self._keys_there
        with timing.stage("search"), torch.no_grad():
            queries = queries.to(keys.device, torch.float32)
            if not len(keys):
                return nearest_first(*nothing(queries), k)
            parts = [self._of_some(some, k) for some in torch.split(queries, max(1, _SCORES // len(keys)))]
            return torch.cat([distances_sq for distances_sq, _ in parts]), torch.cat([ids for _, ids in parts])

    def _of_some(self, queries: Tensor, k: int) -> Found:
        rows, lists = len(queries), len(self._centres_there)
        probes = min(self.settings.probes, lists)
        near = nearest_centres(queries, self._centres_there, self._centres_sq_there, probes)[1]
        passed_over = torch.ones((rows, lists), dtype=torch.bool, device=queries.device).scatter_(1, near, False)
        scores = torch.addmm(self._norms_sq, queries, self._keys_there.T, alpha=-2)
        scores.masked_fill_(passed_over[:, self._lists_there], float("inf"))
        grouped = scores.view(rows, -1, _GROUP)  # the k smallest scores lie in the k groups with the smallest minima
        groups = grouped.amin(2).topk(min(k, grouped.shape[1]), dim=1, largest=False, sorted=False)[1]
        few = grouped.gather(1, groups[..., None].expand(-1, -1, _GROUP)).flatten(1)
        ids = (groups[..., None] * _GROUP + torch.arange(_GROUP, device=queries.device)).flatten(1)
        distances_sq, ids = nearest_first(few, ids, k)
        return (distances_sq + queries.square().sum(1, keepdim=True)).clamp_(min=0), ids
