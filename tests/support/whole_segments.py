"""The arrays that a build makes of sources and of a forced pass, for segments that are made without a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knnmt.corpus.match_tokens import word_hashes
from knnmt.corpus.sameness import sameness_hash
from knnmt.datastore.arrays import Array
from knnmt.datastore.postings import word_arrays
from knnmt.datastore.segment import source_arrays


def arrays_of_sources(texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Hashes, words, tokens and postings of sources, none of which is a line of another unit."""
    return {
        "lines": np.zeros(len(texts), np.uint8),
        "source_hashes": np.array([sameness_hash(text) for text in texts], np.int64),
        **word_arrays([word_hashes(text) for text in texts]),
        **source_arrays(tokens),
    }


def arrays_of_a_pass(entries: int) -> dict[str, Array]:
    """Alignment with the first two source tokens in turn, and scores that differ."""
    numbers = np.arange(entries)
    return {
        "alignment": (numbers % 2).astype(np.uint16),
        "log_probabilities": (-(numbers % 7) / 2).astype(np.float16),
        "first_choices": (numbers % 3 == 0).astype(np.uint8),
    }
