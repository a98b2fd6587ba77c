"""Postings: for each source token of a segment, the sentences that hold it. They make it cheap to find like sources.

| array | type and shape | what it holds |
|---|---|---|
| posting_tokens | int32 (distinct tokens,) | the source tokens that occur, ascending |
| posting_offsets | int64 (distinct tokens + 1,) | where the postings of each begin |
| posting_sentences | int32 (source tokens,) | the sentences that hold each, ascending, named as often as they do |
"""

from __future__ import annotations

import numpy as np

from knnmt.datastore.arrays import Array

POSTINGS = ("posting_tokens", "posting_offsets", "posting_sentences")


def posting_arrays(source_tokens: Array, source_offsets: Array) -> dict[str, Array]:
    """The postings of a segment's source tokens."""
    sentences = np.repeat(np.arange(len(source_offsets) - 1, dtype=np.int32), np.diff(source_offsets))
    order = np.argsort(source_tokens, kind="stable")
    distinct, starts = np.unique(source_tokens[order], return_index=True)
    return {
        "posting_tokens": distinct.astype(np.int32),
        "posting_offsets": np.append(starts, len(source_tokens)).astype(np.int64),
        "posting_sentences": sentences[order],
    }
