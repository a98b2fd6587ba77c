"""Segments are decoded in any order, but texts are returned in theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Turns:
    """The texts of a window, each with some segments, which are numbered across all texts."""

    def __init__(self, segments: Sequence[int]) -> None:
        self._waiting = list(segments)  # segments of each text that are not decoded yet
        self._text_of = [text for text, count in enumerate(segments) for _ in range(count)]
        self._counts = segments
        self._next = self._first_segment = 0
        self._done = self._waiting.count(0)

    def decoded(self, segments: Iterable[int]) -> int:
        """Note that these segments are decoded. Return how many more texts are done, also since the beginning."""
        for segment in segments:
            text = self._text_of[segment]
            self._waiting[text] -= 1
            self._done += not self._waiting[text]
        done, self._done = self._done, 0
        return done

    def come(self) -> Iterator[tuple[int, slice]]:
        """The next texts that are done, with no unfinished text before them, each with its segments."""
        while self._next < len(self._waiting) and not self._waiting[self._next]:
            text, first = self._next, self._first_segment
            self._next, self._first_segment = text + 1, first + self._counts[text]
            yield text, slice(first, self._first_segment)
