"""Texts that wait until their segments are decoded, and the requests that wait for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from knnmt.service.watching import Watch, Watched
from knnmt.translator.assembly import Part
from knnmt.translator.job import Job
from knnmt.translator.memories import Request
from knnmt.translator.piecework import BegunText, TextSettings
from knnmt.translator.translation import Translation


@dataclass(slots=True, eq=False)
class Turn:
    """The turn of a request: when its next segment is to be decoded, on a clock that counts segments in rotation."""

    at: float = 0.0


@dataclass(slots=True, eq=False)
class Arrival:
    """A text of a request. wanted: the sender's future; watch: is told the progress"""

    request: Request
    settings: TextSettings
    turn: Turn
    wanted: Future[Translation]
    watch: Watch | None


@dataclass(slots=True, eq=False)
class WaitingText:
    """A text whose segments wait or are being decoded. wanted: the futures of all who wait for it"""

    begun: BegunText
    turn: Turn
    key: Hashable | None
    wanted: list[Future[Translation]]
    watched: Watched = field(default_factory=Watched)
    found: list[list[Part]] = field(init=False)
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.cut_as(self.begun)

    def cut_as(self, begun: BegunText) -> None:
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
        """Give an error to all who want the text."""
        refuse(self.wanted, error)


@dataclass(slots=True, eq=False)
class Piece:
    """A segment of a text."""

    text: WaitingText
    place: int

    @property
    def job(self) -> Job:
        """The work of decoding it."""
        return self.text.begun.jobs[self.place]


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
