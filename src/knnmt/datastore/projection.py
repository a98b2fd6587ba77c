"""The projection of a store with reduced keys, as it lies on disk: what queries go through before they are searched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from knnmt.datastore.arrays import Array, Buffer, arrays_in, map_stored, require_arrays
from knnmt.datastore.manifest import StoredFile

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
    def open(cls, directory: Path, stored: StoredFile) -> StoredProjection:
        """Map the file; its size and its list of arrays are checked, no array is read."""
        content = map_stored(directory, stored)
        arrays = arrays_in(content, directory / stored.file)
        require_arrays(directory / stored.file, arrays, PROJECTION_ARRAYS)
        return cls(stored, content, arrays)
