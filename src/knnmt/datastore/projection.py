"""The stored projection of a store with reduced keys: queries are projected before the search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from knnmt.datastore.arrays import Array, Buffer, arrays_in, map_stored, require_arrays
from knnmt.datastore.manifest import StoredFile
from knnmt.errors import DatastoreDamagedError

PROJECTION_ARRAYS = ("mean", "components", "explained_variance")


@dataclass(frozen=True, slots=True)
class StoredProjection:
    """A projection's file, mapped for reading.

    arrays: mean (the model's dim,), components (the model's dim, dim) and explained_variance (dim,), all float32
    """

    stored: StoredFile
    content: Buffer
    arrays: dict[str, Array]

    @classmethod
    def open(cls, directory: Path, stored: StoredFile, dim: int, guarded: bool = False) -> StoredProjection:
        """Map the file and check its size and the types and shapes of its arrays; no array is read."""
        content = map_stored(directory, stored, guarded)
        path = directory / stored.file
        arrays = arrays_in(content, path)
        shapes = ((None,), (None, dim), (dim,))
        forms = {name: ("float32", shape) for name, shape in zip(PROJECTION_ARRAYS, shapes, strict=True)}
        require_arrays(path, arrays, forms)
        if len(arrays["mean"]) != len(arrays["components"]):
            raise DatastoreDamagedError(
                f"{path}: mean and components are of {len(arrays['mean'])} and {len(arrays['components'])} dimensions. "
                "Restore the file, or build the store again."
            )
        return cls(stored, content, arrays)

    @property
    def model_dim(self) -> int:
        """Dimensions of the queries before the projection."""
        return len(self.arrays["mean"])
