"""Rewrites segments, one or a few at a time: leaves out removed sentences and joins small segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import POSTINGS, WORDS, joined_words, posting_arrays, words_of_chosen
from knnmt.datastore.prepared import TEXTS
from knnmt.datastore.segment import Segment
from knnmt.datastore.slices import SLICE_ENTRIES, write_segment

# How each array is joined: as rows of entries or sentences, as rows of ragged arrays, or as offsets into these.
ENTRY_ARRAYS = ("keys", "values", "sentences", "positions", "alignment", "log_probabilities", "first_choices", "counts")
_SENTENCE_ARRAYS = ("source_hashes", "lines")
_RAGGED = {
    "target_offsets": ("target_tokens",),
    "source_offsets": ("source_tokens", "source_states"),
}


def merge_segments(directory: Path, segments: Sequence[Segment], first_number: int) -> tuple[list[SegmentRecord], int]:
    """Records of segments without removed sentences, and how many of them are new, numbered from `first_number`.

    A segment of full size without removed sentences stays unchanged.
    """
    records: list[SegmentRecord] = []
    new = 0
    for stays, group in groupby(segments, _stays):
        if stays:
            records += [segment.record for segment in group]
            continue
        for arrays in joined(map(without_removed, group)):
            name = f"{first_number + new:05d}-compacted.safetensors"
            records.append(write_segment(directory, name, arrays))
            new += 1
    return records, new


def _stays(segment: Segment) -> bool:
    return not len(segment.removed) and segment.record.entries >= SLICE_ENTRIES // 2


def joined(parts: Iterable[dict[str, Array]]) -> Iterator[dict[str, Array]]:
    """Joins the arrays of consecutive small segments into segments of about full size; drops empty segments."""
    waiting: list[dict[str, Array]] = []
    entries = 0
    for part in parts:
        if len(part["target_offsets"]) == 1:
            continue
        if waiting and (entries >= SLICE_ENTRIES or part.keys() != waiting[0].keys()):
            yield join(waiting)
            waiting, entries = [], 0
        waiting.append(part)
        entries += len(part["values"])
    if waiting:
        yield join(waiting)


def sound_arrays(segment: Segment) -> dict[str, Array]:
    """The arrays of a segment, refused unless they can be cut and joined."""
    segment.owners()
    segment.gone_sentences()
    segment.words()
    for name in ("text_offsets", *_RAGGED):
        segment.offsets(name)
    return segment.arrays


def without_removed(segment: Segment) -> dict[str, Array]:
    """The arrays of a segment as if its removed sentences had never been there."""
    arrays = sound_arrays(segment)
    if not len(segment.removed):
        return arrays
    sentences = segment.live_sentences()
    return chosen_arrays(arrays, sentences, segment.live_entries()) | words_of_chosen(arrays, sentences)


def chosen_arrays(arrays: dict[str, Array], sentences: Array, entries: Array) -> dict[str, Array]:
    """The arrays of some sentences, ascending, without their words. entries: a mask of their entries, or indices"""
    left = {name: arrays[name][entries] for name in ENTRY_ARRAYS if name in arrays}
    left["sentences"] = np.searchsorted(sentences, left["sentences"]).astype(np.int32)
    for offsets, names in _RAGGED.items():
        left[offsets], rows = _choose(arrays[offsets], sentences)
        left |= {name: arrays[name][rows] for name in names if name in arrays}
    left |= posting_arrays(left["source_tokens"], left["source_offsets"])
    left |= {name: arrays[name][sentences] for name in _SENTENCE_ARRAYS}
    texts = (TEXTS * sentences[:, None] + np.arange(TEXTS)).ravel()
    left["text_offsets"], rows = _choose(arrays["text_offsets"], texts)
    left["texts"] = arrays["texts"][rows]
    return left


def _choose(offsets: Array, chosen: Array) -> tuple[Array, Array]:
    """Offsets of the chosen stretches alone, and the rows of the ragged array that they take."""
    lengths = offsets[chosen + 1] - offsets[chosen]
    new = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(new[-1]) + np.repeat(offsets[chosen] - new[:-1], lengths)
    return new, rows


def join(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """The arrays of one segment from the arrays of several, which must all have the same names."""
    joined = {}
    sentences = np.cumsum([0, *(len(part["target_offsets"]) - 1 for part in parts)])
    for name in parts[0]:
        if name in (*POSTINGS, *WORDS):
            continue
        if name == "sentences":
            shifted = [part[name] + first for part, first in zip(parts, sentences, strict=False)]
            joined[name] = np.concatenate(shifted).astype(np.int32)
        elif name.endswith("_offsets"):
            ends = np.cumsum([0, *(part[name][-1] for part in parts)])
            moved = [part[name][1:] + first for part, first in zip(parts, ends, strict=False)]
            joined[name] = np.concatenate([[0], *moved]).astype(np.int64)
        else:
            joined[name] = np.concatenate([part[name] for part in parts])
    joined |= posting_arrays(joined["source_tokens"], joined["source_offsets"])
    if "word_tokens" in parts[0]:  # sentences cut from a segment have none
        joined |= joined_words(parts, sentences[:-1].tolist())
    return joined
