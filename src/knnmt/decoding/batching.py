"""Grouping segments of similar length."""

from __future__ import annotations

from collections.abc import Sequence

from knnmt.config import BatchingConfig


def batches_by_length(lengths: Sequence[int], config: BatchingConfig) -> list[list[int]]:
    """Indices grouped into batches, longest first, so that a lack of memory shows at once."""
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if room == 0:
            batches.append([])
            room = config.sentences or len(lengths)
            if config.tokens is not None:
                room = min(room, max(1, config.tokens // max(1, lengths[index])))
        batches[-1].append(index)
        room -= 1
    return batches
