"""Groups segments of similar length into batches, and closes the gaps that finished segments leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from knnmt.config import BatchingConfig


def batches_by_length(lengths: Sequence[int] | NDArray[np.int64], config: BatchingConfig) -> list[list[int]]:
    """Indices grouped into batches, longest first, so that a lack of memory shows in the first batch."""
    order: list[int] = np.argsort(-np.asarray(lengths, np.int64), kind="stable").tolist()
    batches: list[list[int]] = []
    while order:
        room = config.sentences or len(lengths)
        if config.tokens is not None:
            room = min(room, max(1, config.tokens // max(1, int(lengths[order[0]]))))
        batches.append(order[:room])
        order = order[room:]
    return batches


def with_gaps_filled(open_: Sequence[int]) -> list[int]:
    """The same places with as few moves as possible: the last ones fill the gaps that finished ones left."""
    count = len(open_)
    staying = {place for place in open_ if place < count}
    movers = iter([place for place in open_ if place >= count])
    return [place if place in staying else next(movers) for place in range(count)]
