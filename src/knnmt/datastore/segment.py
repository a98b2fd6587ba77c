"""One immutable segment: the entries of some sentences, and the sentences.

| array | type and shape | what it holds |
|---|---|---|
| keys | float16 or float32 (entries, dim) | the decoder's output before the target token, projected if reduced |
| values | int32 (entries,) | the target token, end tokens included |
| sentences | int32 (entries,) | the entry's sentence, counted within the segment |
| positions | int32 (entries,) | the place of the target token in its sentence |
| target_tokens | int32 (tokens,) | every target's token ids whole, one after the other |
| target_offsets | int64 (sentences + 1,) | where each target begins in target_tokens |
| texts | uint8 (bytes,) | source, target and origin of every sentence, UTF-8, one after the other |
| text_offsets | int64 (3 * sentences + 1,) | where each of those begins in texts |

Arrays a segment carries besides if the store is made for Fast kNN-MT: source_tokens int32 with source_offsets int64
(sentences + 1,) as for the target; source_states (source tokens, the model's dim), the encoder's output, in the keys'
type; alignment int32 (entries,), the place of each entry's source token in its source. After pruning: counts int32
(entries,), how many entries each stands for. Where units have several lines: lines uint8 (sentences,), 1 for a sentence
that is a line of the unit before it and no unit itself. Segments of earlier versions lack source_hashes int64
(sentences,): of each source as the model saw it, so that it is found without reading the texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array, Buffer, arrays_in, map_stored, require_arrays
from knnmt.datastore.manifest import SegmentRecord, StoredFile

FOR_FAST = ("source_tokens", "source_offsets", "source_states", "alignment")
REQUIRED = ("keys", "values", "sentences", "positions", "target_tokens", "target_offsets", "texts", "text_offsets")


def sentence_arrays(pairs: Sequence[SegmentPair], targets: Sequence[Sequence[int]]) -> dict[str, Array]:
    """The arrays that hold the sentences of a segment."""
    texts = [text.encode("utf-8") for pair in pairs for text in (pair.source, pair.target, pair.origin)]
    return {
        "texts": np.frombuffer(b"".join(texts), np.uint8),
        "text_offsets": _offsets([len(text) for text in texts]),
        "target_tokens": np.array([token for target in targets for token in target], np.int32),
        "target_offsets": _offsets([len(target) for target in targets]),
    }


def source_arrays(sources: Sequence[Sequence[int]], dim: int, dtype: str) -> dict[str, Array]:
    """The arrays that hold the source side of a segment, the states yet to be filled in."""
    tokens = np.array([token for source in sources for token in source], np.int32)
    return {
        "source_tokens": tokens,
        "source_offsets": _offsets([len(source) for source in sources]),
        "source_states": np.empty((len(tokens), dim), dtype),
    }


def _offsets(lengths: Sequence[int]) -> Array:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment mapped for reading, with the sentences that are gone."""

    record: SegmentRecord
    arrays: dict[str, Array]
    removed: Array
    files: tuple[tuple[StoredFile, Buffer], ...]

    @classmethod
    def open(cls, directory: Path, record: SegmentRecord) -> Segment:
        """Map the segment's files; their sizes and their lists of arrays are checked, no array is read."""
        stored = [record.stored, *([record.removed.stored] if record.removed else [])]
        files = tuple((each, map_stored(directory, each)) for each in stored)
        mapped = [arrays_in(buffer, directory / each.file) for each, buffer in files]
        removed = {"removed": np.empty(0, np.int32)} if record.removed is None else mapped[1]
        require_arrays(directory / stored[0].file, mapped[0], REQUIRED)
        require_arrays(directory / stored[-1].file, removed, ["removed"])
        return cls(record, mapped[0], removed["removed"], files)

    def pair(self, sentence: int) -> SegmentPair:
        """The texts of a sentence."""
        begin, middle, origin, end = self.arrays["text_offsets"][3 * sentence : 3 * sentence + 4]
        texts = self.arrays["texts"]
        source, target, place = (
            texts[start:stop].tobytes().decode("utf-8")
            for start, stop in ((begin, middle), (middle, origin), (origin, end))
        )
        return SegmentPair(source, target, place)

    def target_tokens(self, sentence: int) -> Array:
        """The target's token ids whole, whatever became of its entries."""
        begin, end = self.arrays["target_offsets"][sentence : sentence + 2]
        tokens: Array = self.arrays["target_tokens"][begin:end]
        return tokens

    def live_sentences(self) -> Array:
        """Indices of the sentences that were not removed."""
        return np.setdiff1d(np.arange(self.record.sentences), self.removed, assume_unique=True)

    def live_entries(self) -> Array:
        """(entries,) bool: True where the entry's sentence was not removed."""
        return ~np.isin(self.arrays["sentences"], self.removed)

    def pairs(self) -> Iterator[tuple[int, SegmentPair]]:
        """The sentences that were not removed, with their indices."""
        for sentence in self.live_sentences().tolist():
            yield sentence, self.pair(sentence)

    def units(self) -> Iterator[tuple[int, SegmentPair]]:
        """Those of them that are units as they were read, no lines of others."""
        lines = self.arrays.get("lines")
        return (each for each in self.pairs() if lines is None or not lines[each[0]])

    def units_of(self, sentences: Array) -> Array:
        """For each sentence the one that is its unit: itself, but for lines."""
        lines = self.arrays.get("lines")
        if lines is None:
            return sentences
        units = np.flatnonzero(lines == 0)
        found: Array = units[np.searchsorted(units, sentences, side="right") - 1]
        return found
