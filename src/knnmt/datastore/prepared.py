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

_TEXTS = 3  # source, target and origin
_IS_CONTEXT = 1 << 63  # set in the length of a context: sentences without a context keep their digests


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Consecutive sentences: the units of a memory, each followed by its lines.

    texts: source, target and origin of each sentence as read, in UTF-8, one row each; contexts: a row for each sentence
    named: the bytes that identify each sentence; a slice's digest is made from them
    sources, targets: token ids of the texts that the model sees
    words: the hashes of the words of the sources; hashes: those of the sources, int64
    lines: uint8, 1 for a line of the unit before it
    """

    texts: Rows
    contexts: Rows
    named: Rows
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
            texts=self.texts[_TEXTS * first : _TEXTS * end],
            contexts=self.contexts[own],
            named=self.named[own],
            sources=self.sources[own],
            targets=self.targets[own],
            words=self.words[own],
            hashes=self.hashes[own],
            lines=self.lines[own],
        )

    def taken(self, sentences: NDArray[np.int64]) -> Slice:
        """The sentences with these numbers."""
        return Slice(
            texts=self.texts.taken((_TEXTS * sentences[:, None] + np.arange(_TEXTS)).ravel()),
            contexts=self.contexts.taken(sentences),
            named=self.named.taken(sentences),
            sources=self.sources.taken(sentences),
            targets=self.targets.taken(sentences),
            words=self.words.taken(sentences),
            hashes=self.hashes[sentences],
            lines=self.lines[sentences],
        )

    def origin(self, sentence: int) -> str:
        """The origin of a sentence."""
        return bytes(self.texts[_TEXTS * range(len(self))[sentence] + 2]).decode("utf-8")

    def digest(self) -> str:
        """A digest of the slice's content, for its name."""
        return hashlib.sha256(self.named.numbers.data).hexdigest()[:16]


def texts_of(pairs: Sequence[SegmentPair]) -> tuple[Rows, Rows]:
    """The texts and the contexts of pairs, as a slice holds them."""
    texts = [text.encode("utf-8") for pair in pairs for text in (pair.source, pair.target, pair.origin)]
    return _in_rows(texts), _in_rows([pair.context.encode("utf-8") for pair in pairs])


def names_of(pairs: Sequence[SegmentPair]) -> Rows:
    """The bytes that identify pairs: their texts, each after its length, and a context only if there is one."""
    names = []
    for pair in pairs:
        texts = [text.encode("utf-8") for text in (pair.source, pair.target, pair.origin)]
        parts = [part for text in texts for part in (len(text).to_bytes(8, "little"), text)]
        if pair.context:
            context = pair.context.encode("utf-8")
            parts += [(len(context) | _IS_CONTEXT).to_bytes(8, "little"), context]
        names.append(b"".join(parts))
    return _in_rows(names)


def _in_rows(texts: Sequence[bytes]) -> Rows:
    return Rows.cut(np.frombuffer(b"".join(texts), np.uint8), [*map(len, texts)])


def _joined(parts: list[Any]) -> Any:
    return Rows.joined(parts) if isinstance(parts[0], Rows) else np.concatenate(parts)
