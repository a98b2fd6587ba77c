"""The segments that wait until they are decoded, which of them make the next batch, and how costly ones give way.

A costly batch pauses after every step for as long as the step took, times the number of others: usual batches that are
being decoded, and clients that wait. Beside ten others, it decodes for an eleventh of the time. It ends if nobody wants
it any more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field

from knnmt.service.scheduling.fair_queue import FairQueue
from knnmt.service.scheduling.waiting_texts import WaitingText
from knnmt.translator.segments import Job
from knnmt.translator.session import Lane
from knnmt.translator.stages import OnPartialTexts

_CONSIDERED = 4  # a batch is chosen from the first 4 times its size of waiting segments
_AHEAD = 4  # a client has enough waiting segments if they make 4 batches
_USUAL_COST = 195.0  # of a segment: 30 tokens with a beam of 5
_DOUBLE = 100  # tokens: a segment with so many takes twice as much for each of them as a short one
_COSTLY = 0.5  # a segment is costly if it has more than this share of the cost of a batch


@dataclass(slots=True, eq=False)
class Piece:
    """A segment of a text, at a place among its segments.

    lane: segments of one lane can be decoded together
    cost: about the work of decoding it, in rows and steps: a step has a row for each hypothesis, and later steps take
        longer, because each looks back at all earlier ones
    """

    text: WaitingText
    place: int
    job: Job = field(init=False)
    lane: Lane = field(init=False)
    cost: float = field(init=False)

    def __post_init__(self) -> None:
        self.job, self.lane = self.text.begun.jobs[self.place], self.text.begun.lane
        tokens = max(1, len(self.job.source))
        self.cost = tokens * (1.0 + tokens / _DOUBLE) * self.lane.decoding.beam


class WaitingPieces:
    """Segments that wait. Not for several threads at once.

    batch: segments of a batch, at most; if they cost more than usual ones, fewer
    """

    def __init__(self, batch: int) -> None:
        self._batch, self._most_cost = batch, batch * _USUAL_COST
        self._queue = FairQueue[Piece]()
        self._counts = Counter[Hashable]()  # by client

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, piece: Piece) -> None:
        """Add a segment."""
        self._queue.put(piece.text.owner, piece, piece.cost)
        self._counts[piece.text.owner[0]] += 1

    def clients_with_enough(self) -> set[Hashable]:
        """The clients for whom no more texts need to be cut yet."""
        return {client for client, count in self._counts.items() if count >= _AHEAD * self._batch}

    def charge(self, pieces: Sequence[Piece], more: float) -> None:
        """Charge the clients of segments that took longer than their costs promised. more: cost of all together"""
        whole = sum(piece.cost for piece in pieces)
        for piece in pieces:
            self._queue.charge(piece.text.owner[:1], more * piece.cost / whole)

    def is_costly(self, piece: Piece) -> bool:
        """Whether a batch with this segment takes much longer than usual."""
        return piece.cost > _COSTLY * self._most_cost

    def drop_abandoned(self) -> set[WaitingText]:
        """Remove the segments of texts that nobody wants any more, and return these texts."""
        unwanted = [piece for piece in self._queue.in_turn() if piece.text.abandoned]
        self._queue.forget(set(unwanted))
        self._count_out(unwanted)
        return {piece.text for piece in unwanted}

    @property
    def clients(self) -> int:
        """How many clients have waiting segments."""
        return len(self._counts)

    def take_batch(self, idle: int, with_costly: bool, with_usual: bool = True) -> list[Piece]:
        """Remove the next batch: the segment whose turn it is, and those of its lane with the most similar lengths.

        Of every client that waits in this lane, one segment comes before the second one of any other client.

        idle: the workers that decode nothing; each of them gets a share of what waits
        with_costly, with_usual: whether costly segments, and others, are taken; otherwise they wait. They are never in
            one batch
        """
        considered = list[Piece]()
        for piece in self._queue.in_turn():
            costly = self.is_costly(piece)
            if considered:
                fits = piece.lane == considered[0].lane and costly == self.is_costly(considered[0])
            else:
                fits = with_costly if costly else with_usual
            if fits:
                considered.append(piece)
                if len(considered) == _CONSIDERED * self._batch:
                    break
        if not considered:
            return []
        most, first = min(self._batch, -(-len(self._queue) // idle)), len(considered[0].job.source)
        batch, cost = considered[:1], considered[0].cost
        clients = set[Hashable]()
        later = set[Piece]()  # segments whose client has an earlier one here
        for piece in considered:
            client = piece.text.owner[0]
            if client in clients:
                later.add(piece)
            clients.add(client)
        for piece in sorted(considered[1:], key=lambda each: (each in later, abs(len(each.job.source) - first))):
            if len(batch) >= most or cost + piece.cost > self._most_cost:
                break
            batch.append(piece)
            cost += piece.cost
        self._queue.remove(set(batch))
        self._count_out(batch)
        return batch

    def _count_out(self, pieces: Collection[Piece]) -> None:
        for piece in pieces:
            self._counts[piece.text.owner[0]] -= 1
        self._counts = +self._counts  # without clients that have none


_MAX_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.05  # into the pause: whether there are still so many others


class AbandonedError(Exception):
    """Nobody wants the texts of a batch any more."""


def giving_way(pieces: Sequence[Piece], others: Callable[[], int], watched: OnPartialTexts | None) -> OnPartialTexts:
    """A function that is called after every step of a batch, and gives way.

    pieces: of the batch
    others: the number of others now
    watched: receives the progress
    """
    since = time.perf_counter()

    def grow(texts: Callable[[], dict[int, str]]) -> None:
        nonlocal since
        if all(piece.text.abandoned for piece in pieces):
            raise AbandonedError
        if watched is not None:
            watched(texts)
        step, paused = time.perf_counter() - since, 0.0
        while (left := min(_MAX_PAUSE_SECONDS, step * others()) - paused) > 0:
            time.sleep(min(_LOOK_SECONDS, left))
            paused += min(_LOOK_SECONDS, left)
        since = time.perf_counter()

    return grow
