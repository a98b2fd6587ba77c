"""Postings: for each source token of a segment, the sentences that hold it. They make it cheap to find similar sources.

| array | type and shape | what it holds |
|---|---|---|
| posting_tokens | int32 (distinct tokens,) | the source tokens that occur, ascending |
| posting_offsets | int64 (distinct tokens + 1,) | where the postings of each begin |
| posting_sentences | int32 (source tokens,) | the sentences of each token, ascending, once per occurrence |

word_tokens, word_offsets and word_sentences are the same for the words that fuzzy matches count, by their hashes
(`knnmt.corpus.match_tokens`). If two words have the same hash, the index proposes too much, never too little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from knnmt.datastore.arrays import Array
from knnmt.engine.rows import Rows

POSTINGS = ("posting_tokens", "posting_offsets", "posting_sentences")
WORDS = ("word_tokens", "word_offsets", "word_sentences")


def posting_arrays(source_tokens: Array, source_offsets: Array) -> dict[str, Array]:
    """The postings of a segment's source tokens."""
    sentences = np.repeat(np.arange(len(source_offsets) - 1, dtype=np.int32), np.diff(source_offsets))
    return dict(zip(POSTINGS, _postings(source_tokens, sentences), strict=True))


def word_arrays(words: Sequence[Sequence[int]]) -> dict[str, Array]:
    """The postings of the words of some sources, by their hashes."""
    rows = Rows.of(words)
    sentences = np.repeat(np.arange(len(rows), dtype=np.int32), rows.lengths)
    return dict(zip(WORDS, _postings(rows.numbers, sentences), strict=True))


def joined_words(parts: Sequence[Mapping[str, Array]], firsts: Sequence[int]) -> dict[str, Array]:
    """The word postings of several segments in one; the sentences of each begin at these numbers."""
    words = [np.repeat(part["word_tokens"], np.diff(part["word_offsets"])) for part in parts]
    sentences = [part["word_sentences"] + np.int32(first) for part, first in zip(parts, firsts, strict=True)]
    return dict(zip(WORDS, _postings(np.concatenate(words), np.concatenate(sentences)), strict=True))


def words_of_chosen(part: Mapping[str, Array], chosen: Array) -> dict[str, Array]:
    """The word postings of some sentences, which are renumbered; `chosen` ascends."""
    words = np.repeat(part["word_tokens"], np.diff(part["word_offsets"]))
    kept = np.isin(part["word_sentences"], chosen)
    sentences = np.searchsorted(chosen, part["word_sentences"][kept]).astype(np.int32)
    return dict(zip(WORDS, _postings(words[kept], sentences), strict=True))


def _postings(tokens: Array, sentences: Array) -> tuple[Array, Array, Array]:
    """Distinct tokens, where the sentences of each token begin, and these sentences, ascending for each token."""
    order = np.argsort(tokens, kind="stable")
    distinct, starts = np.unique(tokens[order], return_index=True)
    return distinct.astype(np.int32), np.append(starts, len(tokens)).astype(np.int64), sentences[order]
