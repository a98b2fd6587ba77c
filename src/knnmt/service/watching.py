"""Texts that somebody watches while they are decoded: how far each is, some times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from knnmt.translator.translation import Translation

_SECONDS = 0.1  # between two looks at a batch
Watch = Callable[[str], None]
"""Is called with a text as far as it is translated, in the thread that decodes."""


class Watched:
    """Those who watch one text. It grows by its segments, which are decoded in any order."""

    def __init__(self) -> None:
        self._watches: list[tuple[Future[Translation], Watch]] = []
        self._segments: dict[int, str] = {}

    def __bool__(self) -> bool:
        return any(not wanted.cancelled() for wanted, _ in self._watches)

    def add(self, wanted: Future[Translation], watch: Watch | None) -> None:
        """Tell one more, as long as the text is wanted there."""
        if watch is not None:
            self._watches.append((wanted, watch))

    def begin(self) -> None:
        """Forget how far the text was: it is decoded in other segments."""
        self._segments = {}

    def grow(self, place: int, segment: str) -> None:
        """Tell that a segment is translated this far."""
        self._segments[place] = segment
        so_far = " ".join(text for _, text in sorted(self._segments.items()))
        for wanted, watch in self._watches:
            if not wanted.cancelled():
                watch(so_far)


def growing(segments: Sequence[tuple[Watched, int]]) -> Callable[[Callable[[], dict[int, str]]], None] | None:
    """What a batch is to tell of its segments, each with its text and its place there; None where nobody watches."""
    if not any(watched for watched, _ in segments):
        return None
    told = time.monotonic()

    def tell(texts: Callable[[], dict[int, str]]) -> None:
        nonlocal told
        if (now := time.monotonic()) - told < _SECONDS:
            return
        told = now
        for number, text in texts().items():
            watched, place = segments[number]
            watched.grow(place, text)

    return tell
