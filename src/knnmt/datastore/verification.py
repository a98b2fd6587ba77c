"""Checking a store: every checksum, and everything that must hold between its arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from knnmt.datastore.arrays import Buffer
from knnmt.datastore.manifest import Manifest, StoredFile
from knnmt.datastore.projection import StoredProjection
from knnmt.datastore.segment import FOR_FAST, Segment


def problems_of(
    manifest: Manifest, segments: Sequence[Segment], projection: StoredProjection | None = None
) -> Iterator[str]:
    """What is wrong with a store, one line each; nothing where it is sound. Looks at the bytes that a reader sees."""
    for segment in segments:
        for stored, content in segment.files:
            yield from _altered(stored, content)
        for problem in _problems(segment, manifest.dim, manifest.key_dtype, manifest.vocabulary):
            yield f"{segment.record.stored.file}: {problem}"
        if manifest.for_fast:
            for problem in _source_problems(segment, manifest.key_dtype):
                yield f"{segment.record.stored.file}: {problem}"
    if projection is not None:
        yield from _altered(projection.stored, projection.content)
        for problem in _projection_problems(projection, manifest.dim):
            yield f"{projection.stored.file}: {problem}"


def _altered(stored: StoredFile, content: Buffer) -> Iterator[str]:
    found = hashlib.sha256(content).hexdigest()
    if found != stored.sha256:
        yield f"{stored.file}: its bytes were altered (SHA-256 {found[:12]}, not {stored.sha256[:12]})"


def _problems(segment: Segment, dim: int, key_dtype: str, vocabulary: int) -> Iterator[str]:
    arrays, record = segment.arrays, segment.record
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
    counts = arrays.get("counts", np.ones(entries, np.int32))
    if counts.shape != (entries,) or (counts < 1).any():
        yield "the counts do not give each entry a number of at least 1"
    lines, hashes = (arrays.get(name, np.zeros(sentences, np.uint8)) for name in ("lines", "source_hashes"))
    if lines.shape != (sentences,) or lines[:1].any() or (lines > 1).any():
        yield "the lines do not follow units"
    if hashes.shape != (sentences,):
        yield "there is not a hash for each source"
    yield from _entry_problems(segment)
    yield from _removal_problems(segment)
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


def _source_problems(segment: Segment, dtype: str) -> Iterator[str]:
    """What Fast kNN-MT needs: a state for each source token, and for each entry a token of its own source."""
    arrays = segment.arrays
    if missing := [name for name in FOR_FAST if name not in arrays]:
        yield f"made for Fast kNN-MT, but arrays are missing: {', '.join(missing)}"
        return
    offsets, tokens, states = arrays["source_offsets"], arrays["source_tokens"], arrays["source_states"]
    shapes = (len(offsets), len(states), len(arrays["alignment"]))
    if shapes != (segment.record.sentences + 1, len(tokens), segment.record.entries):
        yield "source_offsets, source_states or alignment have the wrong length"
    elif offsets[0] != 0 or (np.diff(offsets) < 1).any() or offsets[-1] != len(tokens):
        yield "source_offsets do not divide source_tokens"
    elif str(states.dtype) != dtype or not np.isfinite(states).all():
        yield f"source_states are not all finite numbers in {dtype}"
    else:
        owner = arrays["sentences"].clip(0, segment.record.sentences - 1)
        if ((arrays["alignment"] < 0) | (arrays["alignment"] >= np.diff(offsets)[owner])).any():
            yield "an entry is aligned outside its source"


def _removal_problems(segment: Segment) -> Iterator[str]:
    removed, counted = segment.removed, segment.record.removed
    if len(removed) and ((np.diff(removed) <= 0).any() or removed[0] < 0 or removed[-1] >= segment.record.sentences):
        yield "the removed sentences are not a sorted list of sentences"
    elif counted and (counted.sentences, counted.entries) != (len(removed), int((~segment.live_entries()).sum())):
        yield "the manifest counts other removed sentences or entries"


def _projection_problems(projection: StoredProjection, dim: int) -> Iterator[str]:
    arrays = projection.arrays
    model_dim = arrays["mean"].shape[:1]
    shapes = {"mean": model_dim, "components": (*model_dim, dim), "explained_variance": (dim,)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            yield f"{name} {arrays[name].shape}, not {shape}"
        if not np.isfinite(arrays[name]).all():
            yield f"{name}: not all are finite numbers"
