"""What chooses the segments that a sentence is searched in: ours, SK-MT's, and ours with one thing changed.

The last show what each part of the choice is worth: `segments-128` is what they are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt import SourceIndex, aligned_source_tokens
from knnmt_lab.reproduction.sk_mt import PlainBM25


class Unigrams(SourceIndex):
    """Covers single tokens."""

    orders = 1


class Bigrams(SourceIndex):
    """Covers tokens and pairs of tokens."""

    orders = 2


class CoveredOnce(SourceIndex):
    """What is covered once counts no more."""

    left = 0.0


class NotHalved(SourceIndex):
    """What is covered goes on to count in full, so that sentences are chosen each for itself."""

    left = 1.0


class FewCandidates(SourceIndex):
    """Covers with the best by BM25 alone, as many again as are chosen."""

    def candidate_count(self, count: int) -> int:
        return 2 * count


class ManyCandidates(SourceIndex):
    """Four times as many candidates to cover with."""

    def candidate_count(self, count: int) -> int:
        return 4 * super().candidate_count(count)


class Aligned(SourceIndex):
    """Searches only the entries that are aligned with a source token that the sentence has, too, or with the end.

    The alignment is that of Fast kNN-MT, which only stores built for it have.
    """

    @cached_property
    def _aligned_with(self) -> NDArray[Any]:
        """(entries,), the source token that each entry of the store is aligned with."""
        parts = [segment.source_tokens()[aligned_source_tokens(segment)] for segment in self._segments]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def searched(self, entries: list[NDArray[Any]], sources: Sequence[Sequence[int]]) -> list[NDArray[Any]]:
        aligned_with = self._aligned_with
        return [mine[np.isin(aligned_with[mine], source)] for mine, source in zip(entries, sources, strict=True)]


CHOOSERS: dict[str, type[SourceIndex]] = {
    "covering": SourceIndex,
    "bm25": PlainBM25,
    "unigrams": Unigrams,
    "bigrams": Bigrams,
    "covered-once": CoveredOnce,
    "not-halved": NotHalved,
    "few-candidates": FewCandidates,
    "many-candidates": ManyCandidates,
    "aligned": Aligned,
}
