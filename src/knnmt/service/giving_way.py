"""Costly batches give way to others while they are decoded.

After every step they pause for as long as the step took, times the number of others: usual batches that are being
decoded, and clients that wait. Beside ten others, a costly batch decodes for an eleventh of the time. It ends if nobody
wants it any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from knnmt.service.waiting_pieces import Piece
from knnmt.translator.stages import OnPartialTexts

_MAX_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.05  # into the pause: whether there are still so many others


class UnwantedError(Exception):
    """Nobody wants the texts of a batch any more."""


def giving_way(pieces: Sequence[Piece], others: Callable[[], int], watched: OnPartialTexts | None) -> OnPartialTexts:
    """A function that is called after every step of a batch, and gives way.

    pieces: of the batch
    others: the number of others now
    watched: is told the progress
    """
    since = time.perf_counter()

    def grow(texts: Callable[[], dict[int, str]]) -> None:
        nonlocal since
        if all(piece.text.abandoned for piece in pieces):
            raise UnwantedError
        if watched is not None:
            watched(texts)
        step, paused = time.perf_counter() - since, 0.0
        while (left := min(_MAX_PAUSE_SECONDS, step * others()) - paused) > 0:
            time.sleep(min(_LOOK_SECONDS, left))
            paused += min(_LOOK_SECONDS, left)
        since = time.perf_counter()

    return grow
