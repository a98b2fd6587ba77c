"""Removes entries: by merging them, or by a rule of your own.

Greedy merging (section 3.1 of the paper): close entries with the same value become one. Entries are visited in random
order. Each entry removes those of its k nearest neighbours that have the same value, and stands for them from then on.
An entry that stands for others is never removed, so there are no chains of merged entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from knnmt.compression.transforming import key_blocks, making, publish
from knnmt.config import check
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import EntryProgress
from knnmt.datastore.manifest import SEGMENTS
from knnmt.datastore.merging import ENTRY_ARRAYS, without_removed
from knnmt.datastore.publication import publish_file
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.progress import ignore

Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""Queries (rows, dim) float32 and k -> squared distances (rows, k) and entry ids (rows, k) int64; -1 means none."""


def prune(
    store: Datastore, output: Path, search: Search, k: int = 2, seed: int = 0, progress: EntryProgress = ignore
) -> Datastore:
    """Make a store at `output` in which every entry stands for the entries that were merged into it (its count).

    search: finds the nearest live entries of this store
    k: the number of neighbours that an entry looks at, without itself
    progress: receives the number of entries whose neighbours were searched
    """
    check(k >= 1, f"k must be at least 1, got {k}")
    check(seed >= 0, f"seed must not be negative, got {seed}")
    with making(store, output) as directory:
        neighbours = nearest(store, search, k, progress)
        values, counts = _of_live_entries(store)
        absorbers = merge(neighbours, values, seed)
        gone = absorbers >= 0
        np.add.at(counts, absorbers[gone], counts[gone])
        _copy_projection(store, directory)
        return publish(directory, output, store.manifest, f"prune:k={k},seed={seed}", _kept(store, ~gone, counts))


def prune_by(
    store: Datastore,
    output: Path,
    search: Search,
    k: int,
    stays: Callable[[Array], Array],
    name: str,
    progress: EntryProgress = ignore,
) -> Datastore:
    """Make a store at `output` without some entries, by a rule of your own. No other entry stands for a removed one.

    Args:
        store: stays as it is.
        output: a directory that does not exist yet.
        search: as for `prune`.
        k: the number of neighbours of an entry, without itself.
        stays: which of the live entries stay, (entries,) bool, from the places of their neighbours among the live
            entries, (entries, k), -1 for none.
        name: of the rule with its settings, for the list of transforms in the manifest, such as "mine:k=4".
        progress: as for `prune`.
    """
    check(k >= 1, f"k must be at least 1, got {k}")
    with making(store, output) as directory:
        chosen = stays(nearest(store, search, k, progress))
        _copy_projection(store, directory)
        return publish(directory, output, store.manifest, name, _kept(store, chosen, None))


def _copy_projection(store: Datastore, directory: Path) -> None:
    if (projection := store.projection) is not None:
        path = directory / SEGMENTS / projection.stored.file
        publish_file(path, lambda file: file.write(projection.content))


def nearest(
    store: Datastore, search: Search, k: int, progress: EntryProgress = ignore, block_rows: int = 1024
) -> Array:
    """(live entries, k) int64: each entry's nearest neighbours, as positions among the live entries, -1 for none.

    block_rows: entries that are searched at once
    """
    blocks = []
    live_ids = []
    done = 0
    for ids, keys in key_blocks(store, block_rows):
        _, found = search(torch.from_numpy(keys.astype(np.float32)), k + 1)
        blocks.append(_without_itself(found.cpu().numpy(), ids))
        live_ids.append(ids)
        done += len(ids)
        progress(done, done)
    neighbours, live = np.concatenate(blocks), np.concatenate(live_ids)
    places = np.searchsorted(live, neighbours).clip(max=len(live) - 1)
    if (live[places] != neighbours)[neighbours >= 0].any():
        raise SettingError(f"the search found entries that {store.path} does not have: index the store again")
    return np.where(neighbours < 0, -1, places)


def _without_itself(found: Array, ids: Array) -> Array:
    """(rows, k + 1) -> (rows, k). If more than k keys are equal, an entry may not find itself: then drop the last."""
    itself = found == ids[:, None]
    itself[:, -1] |= ~itself.any(axis=1)
    others: Array = found[~itself].reshape(len(found), -1)
    return others


def merge(neighbours: Array, values: Array, seed: int, block_rows: int = 1 << 16) -> Array:
    """Decide which entries are merged, and into which.

    neighbours: (entries, k) the nearest neighbours of each entry, without itself, -1 for none
    values: (entries,)
    block_rows: entries that are held as plain lists, which are fastest, at once
    returns: (entries,) int64, the entry that each one is merged into, -1 if it stays
    """
    candidates = np.where(values[neighbours] == values[:, None], neighbours, -1)
    order = np.random.default_rng(seed).permutation(len(values))
    absorber = [-1] * len(values)
    absorbs = bytearray(len(values))
    for start in range(0, len(order), block_rows):
        visited = order[start : start + block_rows]
        for entry, near in zip(visited.tolist(), candidates[visited].tolist(), strict=True):
            if absorber[entry] >= 0:
                continue
            for other in near:
                if other >= 0 and absorber[other] < 0 and not absorbs[other]:
                    absorber[other] = entry
                    absorbs[entry] = 1
    return np.array(absorber, np.int64)


def _of_live_entries(store: Datastore) -> tuple[Array, Array]:
    """Values and counts of all live entries, (live entries,) int32 each."""
    values, counts = [], []
    for segment in store.segments:
        live = segment.live_entries()
        values.append(segment.arrays["values"][live])
        counts.append(segment.arrays["counts"][live] if "counts" in segment.arrays else np.ones(live.sum(), np.int32))
    return np.concatenate(values), np.concatenate(counts)


def _kept(store: Datastore, stays: Array, counts: Array | None) -> Iterator[dict[str, Array]]:
    """The arrays of every segment with only the entries that stay. All sentences stay, even without entries.

    counts: (live entries,) the new counts, or None to keep the old ones
    """
    first = 0
    for segment in store.segments:
        arrays = without_removed(segment)
        here = slice(first, first + len(arrays["values"]))
        if counts is not None:
            arrays = {**arrays, "counts": counts[here]}
        yield {name: array[stays[here]] if name in ENTRY_ARRAYS else array for name, array in arrays.items()}
        first = here.stop
