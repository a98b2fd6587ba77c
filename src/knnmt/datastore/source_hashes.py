"""Finds sentences among millions by hashes of their sources, without reading texts.

A hash is made from the source as the model sees it, and is equal for texts that are forms of one another.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from knnmt.corpus.accelerators import Accelerators, accelerators_in
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import sameness_hash
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import Segment

_MAX_LOOKED_UP = 8


def seen_source(pair: SegmentPair, accelerators: Accelerators) -> str:
    """The source of a stored pair as the model saw it."""
    return for_model(pair, accelerators).source


def possible_hashes(sources: Iterable[str]) -> Array:
    """The hashes that sentences with these sources may have: the model sees sources with or without accelerators."""
    found = set()
    for source in sources:
        found |= {
            sameness_hash(source),
            *(sameness_hash(each.dropped_from(source)) for each in accelerators_in(source)),
        }
    return np.array(sorted(found), np.int64)


def places_of(hashes: Array, wanted: Array) -> Array:
    """Where some hashes occur among others; ascending."""
    if len(wanted) > _MAX_LOOKED_UP:
        return np.flatnonzero(np.isin(hashes, wanted))
    found = np.zeros(len(hashes), np.bool_)
    for each in wanted:  # a large store has many segments, and NumPy has a high fixed cost for small inputs
        found |= hashes == each
    return np.flatnonzero(found)


def sentences_with(segment: Segment, hashes: Array) -> Array:
    """The live sentences of a segment whose sources have one of these hashes; ascending."""
    found = places_of(segment.arrays["source_hashes"], hashes)
    left: Array = found[~np.isin(found, segment.removed)] if len(found) else found
    return left
