"""How short the translations of a store are, so that a translation that lacks content can be noticed."""

from __future__ import annotations

import numpy as np

from knnmt.datastore.prepared import TEXTS
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import Datastore
from knnmt.protection.content import MIN_BYTES

_SHARE = 0.005  # of the segments, whose translations are shorter than the limit
_SAMPLED = 10_000  # segments that are measured
_FEWEST = 200  # with fewer segments, nothing is known


class TranslationLengths:
    """Measures the translations of a store in its current state."""

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._known: tuple[list[Segment], float | None] = [], None

    @property
    def shortest(self) -> float | None:
        """The bytes of a translation for each byte of its source, in UTF-8, that 0.5% of the segments fall below.

        None if the store is too small to tell.
        """
        segments, found = self._known
        if self._store.segments is not segments:  # every change makes a new list
            segments = self._store.segments
            found = _shortest(segments)
            self._known = segments, found  # both in one step, for threads that share this object
        return found


def _shortest(segments: list[Segment]) -> float | None:
    step = max(1, sum(each.record.sentences for each in segments) // _SAMPLED)
    ratios = [np.empty(0)]
    for segment in segments:
        begins, middles, ends = (segment.arrays["text_offsets"][part:][:: TEXTS * step] for part in range(3))
        count = len(ends)
        source, target = middles[:count] - begins[:count], ends - middles[:count]
        usual = source >= MIN_BYTES
        ratios.append(target[usual] / source[usual])
    ratio = np.concatenate(ratios)
    return float(np.quantile(ratio, _SHARE)) if len(ratio) >= _FEWEST else None
