"""`HeldSources`: which sentences of a store have a given source text, as the model sees it, or a form of it.

To a model the forms of a text are different texts. After "Gesperrt." the first decoder state is as far from that after
"Gesperrt" as from those after other words, so that no search for near states finds what the memory holds. Given the
stored form instead, the model arrives at the stored states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import final_mark, loose, plain, sameness_hash, without_final_mark
from knnmt.corpus.units import for_model
from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import StoredFile
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import Datastore


@dataclass(frozen=True, slots=True)
class _Places:
    """The sentences of some segments by the hashes of their sources.

    hashes: (sentences,), in order; sentences: (sentences,), the number of each, counted through the segments
    """

    segments: list[Segment]
    hashes: Array
    sentences: Array

    def of(self, number: int) -> list[tuple[Segment, int]]:
        """The segment and the sentence in it of each that has this hash and was not removed, the newest first."""
        same = slice(*(int(np.searchsorted(self.hashes, number, side)) for side in ("left", "right")))
        first = np.cumsum([0, *(segment.record.sentences for segment in self.segments)])
        found = []
        for place in sorted(self.sentences[same].tolist(), reverse=True):
            which = int(np.searchsorted(first, place, side="right")) - 1
            segment, sentence = self.segments[which], place - int(first[which])
            if sentence not in segment.removed:
                found.append((segment, sentence))
        return found


def seen_source(pair: SegmentPair, accelerators: Accelerators) -> str:
    """The source of a stored pair as the model saw it."""
    return for_model(pair, accelerators).source


def hashes_of_sources(segment: Segment, accelerators: Accelerators) -> Array:
    """(sentences,) int64, equal for sources that are forms of one another. Segments of earlier versions are read."""
    hashes = segment.arrays.get("source_hashes")
    if hashes is None:
        pairs = map(segment.pair, range(segment.record.sentences))
        hashes = np.array([sameness_hash(seen_source(pair, accelerators)) for pair in pairs], np.int64)
    return hashes


class HeldSources:
    """Finds sentences by their source, in a store as it stands when asked.

    It takes 24 bytes a sentence, once something is asked.
    """

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._hashes: dict[StoredFile, Array] = {}
        self._places = _Places([], np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def without_accelerators(self) -> bool:
        """Whether the model saw the store's texts without their accelerators."""
        return self._store.manifest.accelerators == "drop"

    def __contains__(self, text: str) -> bool:
        return bool(self.pairs_of(text))

    def pairs_of(self, text: str) -> list[SegmentPair]:
        """The pairs of this source text that were not removed, as they were read; those added last come first."""
        asked = plain(text)
        return [pair for pair, seen in self._forms(text) if plain(seen) == asked]

    def form_of(self, text: str) -> str | None:
        """The source that the text is or is a form of, as the model sees it; None where there is none.

        Of several, the text itself comes first, then one with the same capitals, one with the same final mark, the
        newest.
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
        pairs = [segment.pair(sentence) for segment, sentence in self._placed().of(sameness_hash(text))]
        accelerators = self._store.manifest.accelerators
        return [(pair, seen) for pair in pairs if loose(seen := seen_source(pair, accelerators)) == wanted]

    def _placed(self) -> _Places:
        segments = self._store.segments
        if segments is not self._places.segments:  # every change and every refresh makes a new list
            known = self._hashes
            accelerators = self._store.manifest.accelerators
            every = [
                hashes_of_sources(each, accelerators) if (found := known.get(each.record.stored)) is None else found
                for each in segments
            ]
            self._hashes = {each.record.stored: mine for each, mine in zip(segments, every, strict=True)}
            hashes = np.concatenate([np.empty(0, np.int64), *every])
            order = np.argsort(hashes, kind="stable")
            self._places = _Places(segments, hashes[order], order)
        return self._places
