"""Texts that wait until they are cut and decoded, and the requests that wait for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from knnmt.protection.marked import written
from knnmt.service.watching import Watch, Watched
from knnmt.translator.assembly import Part
from knnmt.translator.memories import Request
from knnmt.translator.session import PreparedText
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation

_TEXT_COST = 20.0  # of cutting an empty text
LONG = 4_000.0  # the cost of a text that is cut by itself, and of several that are cut at once
Owner = tuple[Hashable, Hashable]
"""The client and the request of a text; texts of clients take turns, and so do those of a client's requests."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A text of a request that is not cut into segments yet.

    wanted: the sender's future; watch: is told the progress
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
