"""Text prepared for the model, in arrays: processes pass it on, cut it and join it at little cost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.rows import Rows

TEXTS = 4  # source, target, origin and context


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Consecutive sentences: the units of a memory, each followed by its lines.

    texts: source, target, origin and context of each sentence as read, in UTF-8, one row each
    sources, targets: token ids of the texts that the model sees
    words: the hashes of the words of the sources; hashes: those of the sources, int64
    lines: uint8, 1 for a line of the unit before it
    """

    texts: Rows
    sources: Rows
    targets: Rows
    words: Rows
    hashes: NDArray[np.int64]
    lines: NDArray[np.uint8]

    @classmethod
    def joined(cls, parts: Sequence[Slice]) -> Slice:
        """The sentences of all parts; there must be at least one part."""
        return cls(*(_joined([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def entries(self) -> int:
        return len(self.targets.numbers)

    def between(self, first: int, end: int) -> Slice:
        """Some of the sentences."""
        own = slice(first, end)
        return Slice(
            texts=self.texts[TEXTS * first : TEXTS * end],
            sources=self.sources[own],
            targets=self.targets[own],
            words=self.words[own],
            hashes=self.hashes[own],
            lines=self.lines[own],
        )

    def taken(self, sentences: NDArray[np.int64]) -> Slice:
        """The sentences with these numbers."""
        return Slice(
            texts=self.texts.taken((TEXTS * sentences[:, None] + np.arange(TEXTS)).ravel()),
            sources=self.sources.taken(sentences),
            targets=self.targets.taken(sentences),
            words=self.words.taken(sentences),
            hashes=self.hashes[sentences],
            lines=self.lines[sentences],
        )

    def origin(self, sentence: int) -> str:
        """The origin of a sentence."""
        return bytes(self.texts[TEXTS * range(len(self))[sentence] + 2]).decode("utf-8")

    def digest(self) -> str:
        """A digest of the slice's content, for its name."""
        digest = hashlib.sha256()
        for array in (self.lines, self.texts.lengths.astype("<i8"), self.texts.numbers):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def texts_of(pairs: Sequence[SegmentPair]) -> Rows:
    """The texts of pairs, as a slice holds them."""
    texts = [text.encode("utf-8") for pair in pairs for text in (pair.source, pair.target, pair.origin, pair.context)]
    return Rows.cut(np.frombuffer(b"".join(texts), np.uint8), [*map(len, texts)])


def _joined(parts: list[Any]) -> Any:
    return Rows.joined(parts) if isinstance(parts[0], Rows) else np.concatenate(parts)
