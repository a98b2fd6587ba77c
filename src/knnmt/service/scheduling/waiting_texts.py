"""Texts that wait until they are cut and decoded, the requests that wait for them, and who watches their progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from knnmt.protection.marked import written
from knnmt.translator.assembly import Part
from knnmt.translator.memories import Request
from knnmt.translator.session import PreparedText
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation

Watch = Callable[[str], None]
"""Is called with the translation of a text so far, in the thread that decodes."""


class Watched:
    """Everybody who watches a text. It grows by its segments, which are decoded in any order."""

    def __init__(self) -> None:
        self._watches: list[tuple[Future[Translation], Watch]] = []
        self._segments: dict[int, str] = {}

    def __bool__(self) -> bool:
        return any(not wanted.cancelled() for wanted, _ in self._watches)

    def add(self, wanted: Future[Translation], watch: Watch | None) -> None:
        """Add a watcher, who hears of the progress as long as the text is wanted."""
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


_TEXT_COST = 20.0  # of cutting an empty text
LONG = 4_000.0  # the cost of a text that is cut by itself, and of several that are cut at once
Owner = tuple[Hashable, Hashable]
"""The client and the request of a text; texts of clients take turns, and so do those of a client's requests."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A text of a request that is not cut into segments yet.

    wanted: the sender's future; watch: receives the progress
    """

    request: Request
    settings: TranslationSettings
    owner: Owner
    wanted: Future[Translation]
    watch: Watch | None

    @property
    def cost(self) -> float:
        """About the work of cutting it, in characters."""
        text = self.request.text
        return _TEXT_COST + len(text if isinstance(text, str) else written(text))

    @property
    def is_long(self) -> bool:
        """Whether others would wait long while it is cut."""
        return self.cost > LONG


@dataclass(slots=True, eq=False)
class WaitingText:
    """A text whose segments wait or are being decoded. wanted: the futures of all who wait for it"""

    begun: PreparedText
    owner: Owner
    key: Hashable | None
    wanted: list[Future[Translation]]
    watched: Watched = field(default_factory=Watched)
    found: list[list[Part]] = field(init=False)
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.cut_as(self.begun)

    def cut_as(self, begun: PreparedText) -> None:
        """Set the segments of this text."""
        self.begun, self.missing = begun, len(begun.jobs)
        self.found = [[] for _ in begun.jobs]
        self.watched.begin()

    @property
    def abandoned(self) -> bool:
        """Whether nobody wants it any more."""
        return all(each.cancelled() for each in self.wanted)

    def hand_over(self, made: Translation) -> None:
        """Give the translation to all who want it."""
        hand_over(self.wanted, made)

    def refuse(self, error: Exception) -> None:
        """Give an error to all who want the text. Nobody wants it then."""
        refuse(self.wanted, error)
        self.wanted = []


def hand_over(wanted: Sequence[Future[Translation]], made: Translation) -> None:
    """Give a translation to those who still want it."""
    for each in wanted:
        if each.set_running_or_notify_cancel():
            each.set_result(made)


def refuse(wanted: Sequence[Future[Translation]], error: Exception) -> None:
    """Give an error to those who still want a translation."""
    for each in wanted:
        if each.set_running_or_notify_cancel():
            each.set_exception(error)
