"""`HeldSources`: finds the sentences of a store with a given source text, as the model sees it, or with a form of it.

For a model, the forms of a text are different texts. After "Gesperrt." the first decoder state is as far from that
after "Gesperrt" as from those after other words, so a search for near states does not find the memory's segment. If the
model gets the stored form instead, it produces the stored states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import final_mark, loose, plain, sameness_hash, without_final_mark
from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import StoredFile
from knnmt.datastore.segment import Segment
from knnmt.datastore.source_hashes import seen_source
from knnmt.datastore.store import Datastore


@dataclass(frozen=True, slots=True)
class _Ordered:
    """The sentences of a segment by the hashes of their sources. hashes: (sentences,), ascending; sentences: of each"""

    hashes: Array
    sentences: Array

    @classmethod
    def of(cls, hashes: Array) -> _Ordered:
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order.astype(np.int32))

    def having(self, number: int) -> Array:
        """The sentences with this hash, ascending."""
        begin, end = (int(np.searchsorted(self.hashes, number, side)) for side in ("left", "right"))
        same: Array = self.sentences[begin:end]
        return same


class HeldSources:
    """Finds sentences by their source in the current state of a store.

    From the first question on, it takes 12 bytes per sentence. After that it processes only the store's changes.
    """

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._shown: tuple[list[Segment], dict[StoredFile, _Ordered]] = [], {}

    @property
    def without_accelerators(self) -> bool:
        """Whether the model saw the store's texts without their accelerators."""
        return self._store.manifest.accelerators == "drop"

    def __contains__(self, text: str) -> bool:
        return bool(self.pairs_of(text))

    def pairs_of(self, text: str) -> list[SegmentPair]:
        """The live pairs with this source text, as they were read; the last added come first."""
        asked = plain(text)
        return [pair for pair, seen in self._forms(text) if plain(seen) == asked]

    def form_of(self, text: str) -> str | None:
        """The stored source that equals the text or is a form of it, as the model sees it; None if there is none.

        If there are several, the text itself comes first, then one with the same capitals, one with the same final
        mark, and the newest.
        """
        itself, body, mark = plain(text), without_final_mark(plain(text)), final_mark(text)

        def likeness(source: str) -> tuple[bool, bool, bool]:
            same = plain(source)
            return same == itself, without_final_mark(same) == body, final_mark(source) == mark

        return max((seen for _, seen in self._forms(text)), key=likeness, default=None)

    def _forms(self, text: str) -> list[tuple[SegmentPair, str]]:
        """The pairs whose source is a form of a text, and that source as the model sees it."""
        wanted = loose(text)
        if not wanted:
            return []
        pairs = [segment.pair(sentence) for segment, sentence in self._with_hash(sameness_hash(text))]
        accelerators = self._store.manifest.accelerators
        return [(pair, seen) for pair in pairs if loose(seen := seen_source(pair, accelerators)) == wanted]

    def _with_hash(self, number: int) -> Iterator[tuple[Segment, int]]:
        """The segment and the sentence number of each live sentence with this hash, the newest first."""
        segments, ordered = self._followed()
        for segment in reversed(segments):
            for sentence in reversed(ordered[segment.record.stored].having(number).tolist()):
                if sentence not in segment.removed:
                    yield segment, sentence

    def _followed(self) -> tuple[list[Segment], dict[StoredFile, _Ordered]]:
        """The segments that the store shows now; known ones are not read again."""
        shown, known = self._shown
        segments = self._store.segments
        if segments is not shown:  # every change makes a new list
            ordered = {
                each.record.stored: known.get(each.record.stored) or _Ordered.of(each.arrays["source_hashes"])
                for each in segments
            }
            self._shown = segments, ordered  # both in one step, for threads that share this object
            return segments, ordered
        return segments, known
