"""The stored source that a text is a form of: the same but for a final mark, capitals or white space.

To a model such texts are different ones. After "Gesperrt." the first decoder state is as far from that after "Gesperrt"
as from those after other words, so that no search for near states finds what the memory holds. Given the stored form
instead, the model arrives at the stored states.
"""

from __future__ import annotations

from threading import Lock

import numpy as np

from knnmt.corpus.sameness import final_mark, loose, plain, without_final_mark
from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import Segment
from knnmt.datastore.store import Datastore


class StoredForms:
    """The sources of a store by what their forms have in common. It follows the store as that is refreshed."""

    def __init__(self, store: Datastore) -> None:
        self._store = store
        self._lock = Lock()
        self._shown: list[Segment] | None = None
        self._hashes: dict[str, Array] = {}  # of the sources of each segment, by the name of its file
        self._ordered = self._places = np.empty(0, np.int64)

    def of(self, text: str) -> str | None:
        """The stored source that the text is or is a form of; None where there is none.

        Of several, the text itself comes first, then one with the same capitals, one with the same final mark, the
        newest.
        """
        wanted = loose(text)
        if not wanted:
            return None
        with self._lock:
            if self._store.segments is not self._shown:  # every change and every refresh makes a new list
                self._follow(self._store.segments)
            found = [each for each in self._with_hash(hash(wanted)) if loose(each) == wanted]
        itself, body, mark = plain(text), without_final_mark(plain(text)), final_mark(text)

        def likeness(source: str) -> tuple[bool, bool, bool, bool]:
            same = plain(source)
            return source == text, same == itself, without_final_mark(same) == body, final_mark(source) == mark

        return max(found, key=likeness, default=None)

    def _with_hash(self, number: int) -> list[str]:
        """Sources that are not removed, the newest first."""
        begin, end = np.searchsorted(self._ordered, [number, number + 1])
        found = []
        for place in sorted(self._places[begin:end].tolist(), reverse=True):
            segment = int(np.searchsorted(self._first, place, side="right")) - 1
            sentence = place - int(self._first[segment])
            if sentence not in self._removed[segment]:
                found.append(self._segments[segment].pair(sentence).source)
        return found

    def _follow(self, segments: list[Segment]) -> None:
        names = [segment.record.stored.sha256 for segment in segments]
        known = self._hashes
        self._hashes = {
            name: known[name] if name in known else _hashes(segment)
            for name, segment in zip(names, segments, strict=True)
        }
        hashes = np.concatenate([np.empty(0, np.int64), *(self._hashes[name] for name in names)])
        self._places = np.argsort(hashes, kind="stable")
        self._ordered = hashes[self._places]
        self._first = np.cumsum([0, *(segment.record.sentences for segment in segments)])
        self._removed = [set(segment.removed.tolist()) for segment in segments]
        self._segments, self._shown = list(segments), segments


def _hashes(segment: Segment) -> Array:
    """(sentences,) int64, equal for sources that are forms of one another; the numbers hold within one process."""
    texts, offsets = segment.arrays["texts"].tobytes(), segment.arrays["text_offsets"].tolist()
    sources = zip(offsets[0:-1:3], offsets[1::3], strict=True)
    found = (hash(loose(texts[begin:end].decode("utf-8"))) for begin, end in sources)
    return np.fromiter(found, np.int64, segment.record.sentences)
