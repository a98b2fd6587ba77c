"""`HeldSources`: which sentences of a store have a given source text, as the model sees it."""

from __future__ import annotations

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain, sameness_hash
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import StoredFile
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import Datastore


class HeldSources:
    """Finds sentences by their source, in a store as it stands when asked.

    It takes 16 bytes a sentence, once something is asked. Segments of earlier versions have to be read for that.
    """

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._hashes: dict[StoredFile, tuple[Array, Array]] = {}

    @property
    def without_accelerators(self) -> bool:
        """Whether the model saw the store's texts without their accelerators."""
        return self._store.manifest.accelerators == "drop"

    def __contains__(self, text: str) -> bool:
        return bool(self.pairs_of(text))

    def pairs_of(self, text: str) -> list[SegmentPair]:
        """The pairs of this source text that were not removed, as they were read; those added last come first."""
        asked, number = plain(text), sameness_hash(text)
        found = []
        for segment in reversed(self._store.segments):
            hashes, order = self._hashes_of(segment)
            same = slice(*(int(np.searchsorted(hashes, number, side)) for side in ("left", "right")))
            for sentence in sorted(order[same].tolist(), reverse=True):
                pair = segment.pair(sentence)
                if sentence not in segment.removed and plain(self._seen(pair)) == asked:
                    found.append(pair)
        return found

    def _seen(self, pair: SegmentPair) -> str:
        return for_model(pair, self._store.manifest.accelerators).source

    def _hashes_of(self, segment: Segment) -> tuple[Array, Array]:
        """The hashes of all sources in order, and the sentence of each."""
        key = segment.record.stored
        if key not in self._hashes:
            hashes = segment.arrays.get("source_hashes")
            if hashes is None:
                pairs = map(segment.pair, range(segment.record.sentences))
                hashes = np.array([sameness_hash(self._seen(pair)) for pair in pairs], np.int64)
            order = np.argsort(hashes, kind="stable")
            shown = {each.record.stored for each in self._store.segments}  # a compacted store has others
            self._hashes = {each: known for each, known in self._hashes.items() if each in shown}
            self._hashes[key] = hashes[order], order
        return self._hashes[key]
