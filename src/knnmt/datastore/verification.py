"""Checks a store: every checksum, and all relations between its arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from knnmt.datastore.arrays import Array, Buffer
from knnmt.datastore.manifest import Manifest, StoredFile
from knnmt.datastore.postings import POSTINGS, posting_arrays
from knnmt.datastore.projection import StoredProjection
from knnmt.datastore.segment import MAX_TOKENS, NOT_ALIGNED, Segment, ascending
from knnmt.errors import DatastoreDamagedError


def problems_of(
    manifest: Manifest, segments: Sequence[Segment], projection: StoredProjection | None = None
) -> Iterator[str]:
    """The problems of a store, one line each; none if it is sound. Checks the bytes that a reader sees."""
    for segment in segments:
        for stored, content in segment.files:
            yield from _altered(stored, content)
        for problem in chain(segment_problems(segment, manifest.vocabulary), _word_problems(segment)):
            yield f"{segment.record.stored.file}: {problem}"
    if projection is not None:
        yield from _altered(projection.stored, projection.content)
        for problem in _projection_problems(projection):
            yield f"{projection.stored.file}: {problem}"


def segment_problems(segment: Segment, vocabulary: int) -> Iterator[str]:
    """The problems of the arrays of a segment, without its words. Types and shapes were checked when it was opened."""
    yield from _problems(segment, vocabulary)
    yield from _source_problems(segment)


def _altered(stored: StoredFile, content: Buffer) -> Iterator[str]:
    found = hashlib.sha256(content).hexdigest()
    if found != stored.sha256:
        yield f"{stored.file}: its bytes were altered (SHA-256 {found[:12]}, not {stored.sha256[:12]})"


def _problems(segment: Segment, vocabulary: int) -> Iterator[str]:
    arrays, entries = segment.arrays, segment.record.entries
    for offsets in ("target_offsets", "text_offsets"):
        try:
            segment.offsets(offsets)
        except DatastoreDamagedError:
            yield f"{offsets} do not divide what they are offsets of"
            return
    if not _all_finite(arrays["keys"]):
        yield "a key is not a finite number"
    for name, what in (("values", "a value"), ("target_tokens", "a token")):
        if len(arrays[name]) and not (arrays[name].min() >= 0 and arrays[name].max() < vocabulary):
            yield f"{what} is outside the vocabulary of {vocabulary}"
    if (arrays.get("counts", np.ones(entries, np.int32)) < 1).any():
        yield "the counts do not give each entry a number of at least 1"
    lines = arrays["lines"]
    if lines[:1].any() or (lines > 1).any():
        yield "the lines do not follow units"
    if not (arrays["log_probabilities"] <= 0).all():
        yield "a log-probability is above 0, or not a number"
    if (arrays["first_choices"] > 1).any():
        yield "the first choices are not 0 or 1 each"
    yield from _entry_problems(segment)
    yield from _removal_problems(segment)
    yield from _text_problems(arrays["texts"], arrays["text_offsets"])


def _word_problems(segment: Segment) -> Iterator[str]:
    try:
        segment.words()
    except DatastoreDamagedError:
        yield "the words are not in order, or have sentences that do not exist"


def _all_finite(numbers: Array) -> bool:
    if numbers.dtype != np.float16:
        return bool(np.isfinite(numbers).all())
    # NumPy is slow with them. All bits of the exponent are 1 in a number that is infinite or not a number.
    return int((numbers.view(np.uint16) & 0x7FFF).max(initial=0)) < 0x7C00


def _text_problems(texts: Array, offsets: Array) -> Iterator[str]:
    inner = offsets[offsets < len(texts)]
    if (texts[inner] & 0xC0 == 0x80).any():
        yield "a text begins within a character"
    try:
        texts.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        yield "the texts are not UTF-8"


def _entry_problems(segment: Segment) -> Iterator[str]:
    """An entry's value must be the token at its position in its sentence."""
    arrays = segment.arrays
    try:
        owner = segment.owners().astype(np.int64)
    except DatastoreDamagedError:
        yield "an entry belongs to no sentence, or not in order"
        return
    begin, end = arrays["target_offsets"][owner], arrays["target_offsets"][owner + 1]
    place = begin + arrays["positions"]
    if (arrays["positions"] < 0).any() or (place >= end).any():
        yield "an entry's position is outside its sentence"
    elif (arrays["target_tokens"][place] != arrays["values"]).any():
        yield "an entry's value is not the token at its position"


def _source_problems(segment: Segment) -> Iterator[str]:
    """Checks source tokens, postings, and that each entry is aligned to its own source; for Fast kNN-MT, the states."""
    arrays = segment.arrays
    try:
        offsets, owner = segment.offsets("source_offsets"), segment.owners()
    except DatastoreDamagedError:
        yield "source_offsets do not divide source_tokens, or the entries' sentences are wrong"
        return
    if (np.diff(offsets) < 1).any():
        yield "a sentence has no source tokens"
    if ((arrays["source_tokens"] < 0) | (arrays["source_tokens"] >= MAX_TOKENS)).any():
        yield "a source token is outside of every vocabulary"
        return
    expected = posting_arrays(arrays["source_tokens"], offsets)
    if any(not np.array_equal(arrays[name], expected[name]) for name in POSTINGS):
        yield "the postings are not those of its source tokens"
    if not np.isfinite(arrays.get("source_states", np.zeros(1))).all():
        yield "source_states are not all finite numbers"
    outside = arrays["alignment"] >= np.diff(offsets)[owner]
    if "source_states" not in arrays:  # Fast kNN-MT needs a token for each entry
        outside &= arrays["alignment"] != NOT_ALIGNED
    if outside.any():
        yield "an entry is aligned outside its source"


def _removal_problems(segment: Segment) -> Iterator[str]:
    removed, counted = segment.removed, segment.record.removed
    if len(removed) and (
        not ascending(removed, each_once=True) or removed[0] < 0 or removed[-1] >= segment.record.sentences
    ):
        yield "the removed sentences are not a sorted list of sentences"
    elif counted and (counted.sentences, counted.entries) != (len(removed), int((~segment.live_entries()).sum())):
        yield "the manifest has other numbers of removed sentences or entries"


def _projection_problems(projection: StoredProjection) -> Iterator[str]:
    for name, array in projection.arrays.items():
        if not np.isfinite(array).all():
            yield f"{name}: not all numbers are finite"
