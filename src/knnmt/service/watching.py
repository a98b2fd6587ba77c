"""Reports the progress of texts while they are decoded, several times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from knnmt.translator.translation import Translation

Watch = Callable[[str], None]
"""Is called with the translation of a text so far, in the thread that decodes."""


class Watched:
    """Those who watch one text. The text grows by its segments, which are decoded in any order."""

    def __init__(self) -> None:
        self._watches: list[tuple[Future[Translation], Watch]] = []
        self._segments: dict[int, str] = {}

    def __bool__(self) -> bool:
        return any(not wanted.cancelled() for wanted, _ in self._watches)

    def add(self, wanted: Future[Translation], watch: Watch | None) -> None:
        """Add a watcher, who is told as long as the text is wanted."""
        if watch is not None:
            self._watches.append((wanted, watch))

    def begin(self) -> None:
        """Forget the progress, because the text is decoded in other segments."""
        self._segments = {}

    def grow(self, place: int, segment: str) -> None:
        """Report the translation of a segment so far."""
        self._segments[place] = segment
        so_far = " ".join(text for _, text in sorted(self._segments.items()))
        for wanted, watch in self._watches:
            if not wanted.cancelled():
                watch(so_far)


def growing(
    segments: Sequence[tuple[Watched, int]], seconds: float = 0.1
) -> Callable[[Callable[[], dict[int, str]]], None] | None:
    """A function that reports the progress of a batch's segments, each with its text and position; None if nobody
    watches.

    seconds: between two looks at the batch
    """
    if not any(watched for watched, _ in segments):
        return None
    told = time.monotonic()

    def tell(texts: Callable[[], dict[int, str]]) -> None:
        nonlocal told
        if (now := time.monotonic()) - told < seconds:
            return
        told = now
        for number, text in texts().items():
            watched, place = segments[number]
            watched.grow(place, text)

    return tell
