"""Joins small additions, so that a store with very many additions has few segments.

An addition is written into one file with the segments before it, beginning with the last, as long as each is at most
twice as large as the data it is joined with. Each remaining segment is then more than twice as large as the next, up
to a fixed size. So there are few segments, and entries are seldom written again. Entries keep their ids and order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import INDEX_RECORD, INDEXES
from knnmt.datastore.prepared import TEXTS
from knnmt.datastore.segment import Segment
from knnmt.datastore.slices import SLICE_ENTRIES
from knnmt.records import parse_json
from knnmt.regular_files import read_regular

MAX_JOINED_ENTRIES = SLICE_ENTRIES // 2  # at most this many entries in a joined segment


def joined_with(segments: Sequence[Segment], added: Mapping[str, Array]) -> int:
    """How many of the last segments an addition is joined with."""
    size = len(added["values"])
    count = 0
    for segment in reversed(segments):
        entries = segment.record.entries
        if entries > 2 * size or entries + size > MAX_JOINED_ENTRIES or segment.arrays.keys() != added.keys():
            break
        count, size = count + 1, size + entries
    return count


def free_to_join(path: Path, segments: Sequence[Segment]) -> int:
    """The first segment that may be joined. An index would no longer fit if segments that it covers were joined.

    An index that is being made follows such joins when it is saved.
    """
    try:
        covers = parse_json(read_regular(path / INDEXES / INDEX_RECORD))["covers"]
        names = [segment.record.stored.sha256 for segment in segments]
        covered = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(covers, names, strict=False)))
        return covered if covered == len(covers) else 0  # 0: the index is of another state and fits no longer
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, LookupError, TypeError):  # the reader of the index reports what is wrong
        return len(segments)


def removed_of(segments: Iterable[Segment], removed: Iterable[Array]) -> Array:
    """The removed sentences of several segments, (n,) int32, numbered as if the segments were one."""
    parts, first = [np.empty(0, np.int32)], 0
    for segment, gone in zip(segments, removed, strict=True):
        parts.append(gone + first)
        first += segment.record.sentences
    joined: Array = np.concatenate(parts).astype(np.int32)
    return joined


class Shared(NamedTuple):
    """The common beginning of two states of a store, in segments of the first."""

    segments: int
    sentences: int
    entries: int


def same_beginning(earlier: Sequence[Segment], later: Sequence[Segment]) -> Shared:
    """How much of an earlier state a later one begins with, including removed sentences and joined segments.

    Segments with the same name are the same; for others, keys, values and texts are compared.
    """
    known = Shared(0, 0, 0)
    place = sentence = entry = 0  # in the later state: the segment, and the part of it already matched
    while known.segments < len(earlier) and place < len(later):
        mine, whole = earlier[known.segments].record, later[place].record
        if not _holds(later[place], sentence, entry, earlier[known.segments]):
            break
        known = Shared(known.segments + 1, known.sentences + mine.sentences, known.entries + mine.entries)
        sentence, entry = sentence + mine.sentences, entry + mine.entries
        if (sentence, entry) == (whole.sentences, whole.entries):
            place, sentence, entry = place + 1, 0, 0
    return known


def _holds(whole: Segment, sentence: int, entry: int, part: Segment) -> bool:
    """Whether a segment holds another one from this sentence and entry on."""
    if whole.record.stored == part.record.stored:
        return sentence == entry == 0
    last = entry + part.record.entries
    if last > whole.record.entries or sentence + part.record.sentences > whole.record.sentences:
        return False
    offsets = whole.arrays["text_offsets"]
    text = whole.arrays["texts"][offsets[TEXTS * sentence] : offsets[TEXTS * (sentence + part.record.sentences)]]
    return (
        np.array_equal(whole.arrays["values"][entry:last], part.arrays["values"])
        and np.array_equal(text, part.arrays["texts"])
        and np.array_equal(whole.arrays["keys"][entry:last], part.arrays["keys"])
    )
