"""Prunings of others, by `knnmt.prune_by`: they leave out entries that the model knows without a memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from knnmt import Datastore, open_store, prune_by
from knnmt.errors import SettingError

Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def prune_known(store: Datastore, output: Path, search: Search, k: int = 4) -> None:
    """Make a store without the entries that tell the model nothing (PLAC, Zhu et al. 2023).

    An entry is left out if the model's first choice is right at the entry and at its k nearest neighbours.

    Args:
        store: stays as it is.
        output: a directory that does not exist yet.
        search: as for `knnmt.prune`.
        k: the number of neighbours of an entry, without itself.
    """
    parts = [segment.arrays["first_choices"][segment.live_entries()] > 0 for segment in store.segments]
    right = np.concatenate(parts)

    def stays(neighbours: NDArray[Any]) -> NDArray[Any]:
        found = ~known(neighbours, right)
        if not found.any():
            raise SettingError(f"{store.path}: the model knows every entry, so no entry would stay")
        return found

    prune_by(store, output, search, k, stays, f"plac:k={k}")


def known(neighbours: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Whether the model is right at an entry and at all its neighbours, (entries,) bool.

    Args:
        neighbours: places of each entry's neighbours among the entries, (entries, k), -1 for none.
        right: whether the model is right at each entry, (entries,) bool.
    """
    found: NDArray[Any] = right & (right[neighbours] | (neighbours < 0)).all(axis=1)
    return found


def prune_surest(store: Datastore, output: Path, search: Search, k: int, keep: float) -> None:
    """Make a store with this share of the entries: those are left out where the model is surest.

    It is PLAC with probabilities instead of first choices: the smallest probability that the model gives to the tokens
    of an entry and of its k nearest neighbours decides.
    """
    snapshot = open_store(store, exact=True).snapshot
    live = snapshot.index.entries.live
    sure = snapshot.own_log_probabilities[slice(None) if live is None else live].numpy()

    def stays(neighbours: NDArray[Any]) -> NDArray[Any]:
        of_neighbours = np.where(neighbours < 0, np.inf, sure[neighbours]).min(axis=1, initial=np.inf)
        found = np.ones(len(sure), bool)
        surest_first = np.argsort(-np.minimum(sure, of_neighbours), kind="stable")
        found[surest_first[: len(sure) - round(keep * len(sure))]] = False
        return found

    prune_by(store, output, search, k, stays, f"surest:k={k},keep={keep:g}")
