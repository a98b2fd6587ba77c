"""The common part of all transforms: they read the live keys of a store in blocks, and publish a new store in one step.

An interrupted transform leaves at most `OUTPUT.making/`. The next run empties that directory and starts over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.datastore.building import clear_leftovers, new_store, publish_new_store
from knnmt.datastore.manifest import SEGMENTS, Manifest
from knnmt.datastore.merging import joined
from knnmt.datastore.publication import clear_files
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.datastore.slices import write_segment
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreError, InputError

_DESCRIPTIONS = re.compile(r"manifest\.json|settings\.json")


def key_blocks(store: Datastore, rows: int) -> Iterator[tuple[Array, Array]]:
    """The live entries in order, in blocks: entry ids (n,) int64 and keys (n, dim) as stored; n is at most `rows`."""
    first = 0
    for segment in store.segments:
        live = np.flatnonzero(segment.live_entries())
        for start in range(0, len(live), rows):
            places = live[start : start + rows]
            yield first + places, segment.arrays["keys"][places]
        first += segment.record.entries


@contextmanager
def making(store: Datastore, output: Path) -> Iterator[Path]:
    """An empty, locked directory in which to make `output` from `store`. If that fails, nothing is left behind."""
    if not store.manifest.live_entries:
        raise InputError(f"{store.path}: has no entries left to make a store from")
    empty = replace(store.manifest, segments=(), projection=None)
    with new_store(output, "making") as directory:
        try:
            _empty(directory, empty)
            write_settings(directory, **read_settings(store.path))  # the settings fit the new store about as well
            yield directory
        except BaseException:
            with suppress(DatastoreError, OSError):  # files that are not ours stay, and then so does the directory
                _empty(directory, empty)
                (directory / "lock").unlink(missing_ok=True)
                (directory / SEGMENTS).rmdir()
                directory.rmdir()
            raise


def _empty(directory: Path, empty: Manifest) -> None:
    clear_files(directory, _DESCRIPTIONS)
    clear_leftovers(directory, empty)


def publish(
    directory: Path, output: Path, manifest: Manifest, transform: str, parts: Iterable[dict[str, Array]]
) -> Datastore:
    """Write the segments whose arrays `parts` yields, then make the directory the store at `output`.

    manifest: the manifest of the new store, still without its segments and the transform's name
    """
    segments = tuple(
        write_segment(directory / SEGMENTS, f"{number:05d}-{transform.partition(':')[0]}.safetensors", arrays)
        for number, arrays in enumerate(joined(parts))
    )
    made = replace(
        manifest,
        transforms=(*manifest.transforms, transform),
        generation=1,
        next_segment=len(segments),
        segments=segments,
    )
    publish_new_store(directory, output, made)
    return Datastore.open(output)
