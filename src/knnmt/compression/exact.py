"""Exact search over all keys of a store that were not removed, segment by segment."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from knnmt.compression.pruning import Search
from knnmt.datastore.store import Datastore


def exact_search(store: Datastore) -> Search:
    """Compares each query with each key; distances are squared."""

    def search(queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        distances_sq = torch.full((len(queries), k), torch.inf)
        ids = torch.full((len(queries), k), -1)
        first = 0
        for segment in store.segments:
            keys = torch.from_numpy(segment.arrays["keys"].astype(np.float32))
            here = keys.square().sum(1) - 2 * queries @ keys.T + queries.square().sum(1, keepdim=True)
            here[:, torch.from_numpy(~segment.live_entries())] = torch.inf
            near, places = here.topk(min(k, len(keys)), largest=False)
            places = torch.where(near.isinf(), -1, places + first)
            distances_sq, chosen = torch.cat([distances_sq, near], 1).topk(k, largest=False)
            ids = torch.cat([ids, places], 1).gather(1, chosen)
            first += len(keys)
        return distances_sq.clamp(min=0), ids

    return search
