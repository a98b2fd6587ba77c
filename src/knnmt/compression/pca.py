"""Shortens keys by principal component analysis (section 3.2 of the paper), and saves the projection with the store.

Covariances of blocks are merged by the method of Chan, Golub and LeVeque (1979), in float64. It never subtracts two
large numbers of similar size, wherever the mean of the keys lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from knnmt.compression.transforming import key_blocks, making, publish
from knnmt.config import check
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.building import EntryProgress
from knnmt.datastore.manifest import SEGMENTS, StoredFile
from knnmt.datastore.merging import without_removed
from knnmt.datastore.projection import PROJECTION_ARRAYS
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.progress import ignore


@dataclass(frozen=True, slots=True, eq=False)
class KeyProjection:
    """The projection that shortened the keys. Queries must go through it, too.

    mean: (from_dim,) float32
    components: (from_dim, to_dim) float32, orthonormal columns
    explained_variance: (to_dim,) float32, each component's share of the variance of the unreduced keys, largest first
    """

    mean: Tensor
    components: Tensor
    explained_variance: Tensor

    @classmethod
    def of(cls, store: Datastore) -> KeyProjection | None:
        """The projection that queries of the model's dimension need before a search in this store; None for none."""
        if store.projection is None:
            return None
        stored = store.projection
        found = cls(*(_float32(stored.arrays[name]) for name in PROJECTION_ARRAYS))
        if not all(bool(each.isfinite().all()) for each in (found.mean, found.components)):
            raise DatastoreDamagedError(
                f"{store.path}: {stored.stored.file} contains numbers that are not finite. Build the store again."
            )
        return found

    def __call__(self, queries: Tensor) -> Tensor:
        """(rows, from_dim) -> (rows, to_dim) float32 on the queries' device. Call `to` once, or every call copies."""
        return (queries.float() - self.mean.to(queries.device)) @ self.components.to(queries.device)

    def to(self, device: torch.device | str) -> KeyProjection:
        return KeyProjection(self.mean.to(device), self.components.to(device), self.explained_variance.to(device))

    def then(self, second: KeyProjection) -> KeyProjection:
        """Both projections in one, this one first: ((x - m) C - n) D = (x - (m + C n)) C D, for orthonormal C."""
        return KeyProjection(
            self.mean + self.components @ second.mean,
            self.components @ second.components,
            second.explained_variance * self.explained_variance.sum(),
        )

    def write(self, directory: Path) -> StoredFile:
        """Write the projection into a store's directory."""
        arrays = {name: getattr(self, name).cpu().numpy() for name in PROJECTION_ARRAYS}
        return write_stored(directory / SEGMENTS, "projection.safetensors", arrays)


def fit(store: Datastore, dim: int, progress: EntryProgress = ignore, block_rows: int = 8192) -> KeyProjection:
    """The `dim` directions in which the live keys vary most, each with its largest coordinate positive.

    block_rows: keys that are read at once
    """
    check(
        1 <= dim <= store.manifest.dim,
        f"dim must lie between 1 and the {store.manifest.dim} dimensions of {store.path}, got {dim}",
    )
    count = 0
    mean = np.zeros(store.manifest.dim)
    scatter = np.zeros((store.manifest.dim, store.manifest.dim))
    for _, keys in key_blocks(store, block_rows):
        if not np.isfinite(keys).all():
            raise DatastoreDamagedError(f"{store.path}: a key is not a finite number. Run `knnmt verify`")
        block = keys.astype(np.float64)
        new = len(block)
        shift = block.mean(axis=0) - mean
        block -= block.mean(axis=0)
        scatter += block.T @ block + np.outer(shift, shift) * (count * new / (count + new))
        count += new
        mean += shift * (new / count)
        progress(count, count)
    variances, axes = np.linalg.eigh(scatter)
    variances, axes = variances[::-1].clip(min=0), axes[:, ::-1]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(len(mean))] < 0, -1, 1)
    explained = variances / (variances.sum() or 1)  # the variance is 0 if all keys are equal
    return KeyProjection(*(_float32(array) for array in (mean, axes[:, :dim], explained[:dim])))


def _float32(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32, order="C"))  # a copy, because memory-mapped files are read-only


def reduce(
    store: Datastore, output: Path, dim: int, progress: EntryProgress = ignore
) -> tuple[Datastore, KeyProjection]:
    """Make a store at `output` whose keys are the first `dim` principal components; return it with its projection.

    `progress` receives the number of keys read. Each key is read twice: to fit and to project. Reduced keys can be
    reduced again: the new store's projection then combines both steps.
    """
    with making(store, output) as directory:
        step = fit(store, dim, progress)
        before = KeyProjection.of(store)
        whole = step if before is None else before.then(step)
        manifest = replace(store.manifest, dim=dim, projection=whole.write(directory))
        made = publish(directory, output, manifest, f"pca:{dim}", _projected(store, step, progress))
    return made, whole


def _projected(store: Datastore, projection: KeyProjection, progress: EntryProgress) -> Iterator[dict[str, Array]]:
    read = store.manifest.live_entries
    for segment in store.segments:
        arrays = without_removed(segment)
        with np.errstate(over="ignore"):  # checked below
            keys = projection(_float32(arrays["keys"])).numpy().astype(store.manifest.key_dtype)
        if not np.isfinite(keys).all():
            raise SettingError(
                f"{store.path}: a projected key is not a finite number in {store.manifest.key_dtype}; build the "
                f"store with float32 keys, and reduce it"
            )
        yield {**arrays, "keys": keys}
        read += len(keys)
        progress(read, read)
