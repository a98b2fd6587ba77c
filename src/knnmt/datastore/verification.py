"""Checking a store: every checksum, and everything that must hold between its arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import numpy as np

from knnmt.datastore.building import SEGMENTS
from knnmt.datastore.segment import REQUIRED, Segment
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError


def verify(store: Datastore, progress: Callable[[int], None] | None = None) -> Iterator[str]:
    """What is wrong with the store, one line each; nothing where it is sound. `progress` is told the bytes read."""
    for stored in store.manifest.files():
        with (store.path / SEGMENTS / stored.file).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if progress is not None:
            progress(stored.bytes)
        if found != stored.sha256:
            yield f"{stored.file}: its bytes were altered (expected SHA-256 {stored.sha256[:12]}, found {found[:12]})"
    for segment in store.segments:
        for problem in _problems(segment, store.manifest.dim, store.manifest.key_dtype, store.manifest.vocabulary):
            yield f"{segment.record.stored.file}: {problem}"


def require_sound(store: Datastore) -> None:
    """Raise if anything is wrong."""
    problems = list(verify(store))
    if problems:
        raise DatastoreDamagedError(
            f"{store.path}: {len(problems)} problems, the first: {problems[0]}. Restore the files, or build again."
        )


def _problems(segment: Segment, dim: int, key_dtype: str, vocabulary: int) -> Iterator[str]:
    arrays, record = segment.arrays, segment.record
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        yield f"arrays are missing: {', '.join(missing)}"
        return
    entries, sentences = record.entries, record.sentences
    shapes = {
        "keys": (entries, dim),
        "values": (entries,),
        "sentences": (entries,),
        "positions": (entries,),
        "target_offsets": (sentences + 1,),
        "text_offsets": (3 * sentences + 1,),
    }
    wrong = [
        f"{name} {arrays[name].shape}, not {shape}" for name, shape in shapes.items() if arrays[name].shape != shape
    ]
    if wrong:
        yield f"arrays have the wrong shape: {'; '.join(wrong)}"
        return
    for offsets, content in (("target_offsets", "target_tokens"), ("text_offsets", "texts")):
        steps = np.diff(arrays[offsets])
        if arrays[offsets][0] != 0 or (steps < 0).any() or arrays[offsets][-1] != len(arrays[content]):
            yield f"{offsets} do not divide {content}"
            return
    if str(arrays["keys"].dtype) != key_dtype:
        yield f"keys are {arrays['keys'].dtype}, not {key_dtype}"
    if not np.isfinite(arrays["keys"]).all():
        yield "a key is not a finite number"
    if entries and not (arrays["values"].min() >= 0 and arrays["values"].max() < vocabulary):
        yield f"a value is outside the vocabulary of {vocabulary}"
    yield from _entry_problems(segment)
    if len(segment.removed):
        if (np.diff(segment.removed) <= 0).any() or segment.removed[0] < 0 or segment.removed[-1] >= sentences:
            yield "the removed sentences are not a sorted list of sentences"
        elif record.removed is None or (int((~segment.live_entries()).sum()), len(segment.removed)) != (
            record.removed.entries,
            record.removed.sentences,
        ):
            yield "the manifest counts other removed sentences or entries"
    try:
        arrays["texts"].tobytes().decode("utf-8")
    except UnicodeDecodeError:
        yield "the texts are not UTF-8"


def _entry_problems(segment: Segment) -> Iterator[str]:
    """An entry's value must be the token at its position of its sentence."""
    arrays = segment.arrays
    owner = arrays["sentences"].astype(np.int64)
    if len(owner) and not (owner.min() >= 0 and owner.max() < segment.record.sentences):
        yield "an entry belongs to no sentence"
        return
    begin, end = arrays["target_offsets"][owner], arrays["target_offsets"][owner + 1]
    place = begin + arrays["positions"]
    if (arrays["positions"] < 0).any() or (place >= end).any():
        yield "an entry's position is outside its sentence"
    elif (arrays["target_tokens"][place] != arrays["values"]).any():
        yield "an entry's value is not the token at its position"
