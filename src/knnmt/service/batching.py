"""`Batcher` decodes the texts of all requests together.

A few threads serve all requests. One thread takes texts in: it looks up exact matches, which need no decoding, and cuts
the other texts into segments. Workers decode batch after batch. A batch starts with the segment whose turn it is, and
is filled with waiting segments of similar length, whatever their request or domain. Turns rotate between requests, so a
new segment waits for about one batch and not for all earlier requests; a long request gets as many segments into a
batch as the others. A text is returned when all its segments are done, even while other segments of the batch are still
being decoded.

On a CPU there are two workers. Two simultaneous batches with half of the cores each finish sooner than one after the
other with all cores, because no core waits for others at the end of every operation.

Equal texts that wait or are being decoded are decoded once. Recent results are remembered until a store changes.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Thread

from knnmt.retrieval.statistics import Statistics
from knnmt.service.problems import Problem
from knnmt.service.result_cache import ResultCache
from knnmt.service.waiting_texts import Arrival, Piece, Turn, WaitingText, hand_over, refuse
from knnmt.service.watching import Watch, growing
from knnmt.translator.assembly import Part
from knnmt.translator.memories import Request
from knnmt.translator.piecework import BegunText, Lane, Piecework, TextSettings
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator

_log = logging.getLogger("knnmt.service")
_CONSIDERED = 4  # a batch is chosen from the first 4 times its size of waiting segments
_MAX_PIECEWORKS = 256
_LINGER, _MAX_LINGER_SECONDS = 0.03, 0.02  # of a batch's time: clients that just got results often ask again soon
_FORGETTING = 0.8  # weight of the old average of the speed when a batch is done


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch that was decoded, for metrics. waiting: segments that were left"""

    segments: int
    seconds: float
    waiting: int


class Batcher:
    """Translates texts of many requests. Threads may share it.

    batch: segments that are decoded together, at most
    workers: batches that are decoded at the same time, by threads that share the cores
    queue: texts and segments that may wait; if there are more, new ones are turned away
    cached: results that are remembered, at most
    told: is called with a report of every batch
    """

    def __init__(
        self,
        translator: Translator,
        batch: int,
        queue: int,
        cached: int,
        told: Callable[[BatchReport], None] = lambda _report: None,
        workers: int = 1,
    ) -> None:
        self.statistics = Statistics()
        self._translator, self._batch, self._most, self._told = translator, batch, queue, told
        self._changed = Condition()
        self._arrived: list[Arrival] = []
        self._lanes: dict[Lane, list[tuple[float, int, Piece]]] = {}
        self._numbers = count()
        self._clock = 0.0
        self._waiting = 0  # segments
        self._taking_in = 0  # texts that have arrived and are not cut yet
        self._decoding = 0  # segments
        self._workers, self._busy = workers, 0
        self._per_second = 0.0
        self._lingers_until = 0.0
        self._in_flight: dict[Hashable, WaitingText] = {}
        self._cache = ResultCache(cached)
        self._pieceworks: OrderedDict[TextSettings, Piecework] = OrderedDict()
        self._closed = False
        self._threads = [
            Thread(target=self._take_in, name="knnmt-intake", daemon=True),
            *(Thread(target=self._decode, name="knnmt-decode", daemon=True) for _ in range(workers)),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How much is not done: texts that are not cut yet, and segments."""
        return self._taking_in + self._waiting + self._decoding

    @property
    def hits(self) -> int:
        """Texts that needed no decoding, because an equal text was being decoded or its result was remembered."""
        return self._cache.hits

    def require_room(self, texts: int) -> None:
        """Raise a problem if too much is waiting. If nothing waits, a request of any size is accepted."""
        if self._closed:
            raise Problem(503, "ending", "the service is being stopped", retry_after=5)
        if (waiting := self.waiting) and waiting + texts > self._most:
            seconds = waiting / self._per_second if self._per_second else 5.0
            message = f"{waiting:,} sentences wait already; try again in about {seconds:.0f} s"
            raise Problem(429, "queue_full", message, retry_after=seconds)

    def submit(
        self, requests: Sequence[Request], settings: TextSettings, watches: Sequence[Watch] | None = None
    ) -> list[Future[Translation]]:
        """Have texts translated. Cancel a future if its text is no longer wanted; texts that nobody wants are not
        decoded.

        watches: one for each text; each is told the progress while its text is decoded
        """
        turn = Turn()
        watched: Sequence[Watch | None] = [None] * len(requests) if watches is None else watches
        arrivals = [
            Arrival(each, settings, turn, Future(), watch) for each, watch in zip(requests, watched, strict=True)
        ]
        with self._changed:
            self.require_room(len(arrivals))
            self.piecework(settings)  # raises errors in the settings at once
            self._arrived += arrivals
            self._taking_in += len(arrivals)
            self._changed.notify_all()
        return [each.wanted for each in arrivals]

    def piecework(self, settings: TextSettings) -> Piecework:
        """The translator's work for texts with these settings."""
        with self._changed:
            found = self._pieceworks.pop(settings, None) or Piecework(self._translator, settings, self.statistics)
            self._pieceworks[settings] = found
            while len(self._pieceworks) > _MAX_PIECEWORKS:
                self._pieceworks.popitem(last=False)
            return found

    def close(self) -> None:
        """Accept nothing more, and end when everything that waits is done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # Taking in --------------------------------------------------------------------------------------------------------

    def _take_in(self) -> None:
        while arrived := self._next_arrivals():
            groups: dict[TextSettings, list[Arrival]] = {}
            for each in arrived:
                if not each.wanted.cancelled():
                    groups.setdefault(each.settings, []).append(each)
            for settings, group in groups.items():
                self._begin(self.piecework(settings), group)
            with self._changed:
                self._taking_in -= len(arrived)
                self._changed.notify_all()

    def _next_arrivals(self) -> list[Arrival]:
        with self._changed:
            while not self._arrived and not self._closed:
                self._changed.wait()
            arrived, self._arrived = self._arrived, []
            return arrived

    def _begin(self, piecework: Piecework, group: list[Arrival]) -> None:
        try:
            begun = piecework.begin([each.request for each in group])
        except Exception as error:
            if len(group) == 1:
                refuse([group[0].wanted], error)
            else:  # one of the texts caused the error; try each on its own
                for each in group:
                    self._begin(piecework, [each])
            return
        for text, arrival in zip(begun, group, strict=True):
            self._enqueue(piecework, text, arrival)

    def _enqueue(self, piecework: Piecework, begun: BegunText, arrival: Arrival) -> None:
        same = begun.sameness()
        key = None if same is None else (piecework, same)
        with self._changed:
            if key is not None and (known := self._cache.get(key)) is not None:
                hand_over([arrival.wanted], known)
                return
            if key is not None and (twin := self._in_flight.get(key)) is not None:
                self._cache.hits += 1
                twin.wanted.append(arrival.wanted)
                twin.watched.add(arrival.wanted, arrival.watch)
                return
            text = WaitingText(begun, arrival.turn, key, [arrival.wanted])
            text.watched.add(arrival.wanted, arrival.watch)
            if begun.jobs:
                if key is not None:
                    self._in_flight[key] = text
                self._queue(text)
                return
        self._end(text)

    def _queue(self, text: WaitingText) -> None:
        """Queue the segments of a text; called with the lock."""
        lane = self._lanes.setdefault(text.begun.lane, [])
        for place in range(len(text.begun.jobs)):
            text.turn.at = max(text.turn.at + 1, self._clock)
            heappush(lane, (text.turn.at, next(self._numbers), Piece(text, place)))
        self._waiting += len(text.begun.jobs)
        self._changed.notify_all()

    # Decoding ---------------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        while (batch := self._next_batch()) is not None:
            lane, pieces = batch
            began = time.perf_counter()
            self._decode_batch(lane, pieces)
            seconds = time.perf_counter() - began
            with self._changed:
                self._busy -= 1
                speed = self._workers * len(pieces) / max(seconds, 1e-6)
                self._per_second = _FORGETTING * self._per_second + (1 - _FORGETTING) * speed or speed
                waiting = self.waiting
            self._lingers_until = time.perf_counter() + min(_LINGER * seconds, _MAX_LINGER_SECONDS)
            self._told(BatchReport(len(pieces), seconds, waiting))

    def _next_batch(self) -> tuple[Lane, list[Piece]] | None:
        """The next batch: the segment that has the first turn, and those of its lane with the most similar lengths."""
        with self._changed:
            self._linger()
            while True:
                self._lanes = {lane: pieces for lane, pieces in self._lanes.items() if pieces}
                if self._lanes:
                    lane = min(self._lanes, key=lambda each: self._lanes[each][0])
                    share = -(-self._waiting // (self._workers - self._busy))  # leave the rest for idle workers
                    if pieces := self._chosen(self._lanes[lane], min(self._batch, max(1, share))):
                        self._waiting -= len(pieces)
                        self._decoding += len(pieces)
                        self._busy += 1
                        return lane, pieces
                elif self._closed and not self._taking_in:
                    return None
                else:
                    self._changed.wait()

    def _linger(self) -> None:
        """Wait a moment after a batch for the next one to fill; called with the lock."""
        while self._waiting < self._batch and not self._closed:
            if (seconds := self._lingers_until - time.perf_counter()) <= 0:
                return
            self._changed.wait(seconds)

    def _chosen(self, lane: list[tuple[float, int, Piece]], most: int) -> list[Piece]:
        considered: list[tuple[float, int, Piece]] = []
        while lane and len(considered) < _CONSIDERED * self._batch:
            each = heappop(lane)
            if each[2].text.abandoned:
                self._waiting -= 1
                self._forget(each[2].text)
            else:
                considered.append(each)
        if not considered:
            return []
        self._clock, first = considered[0][0], len(considered[0][2].job.source)
        order = sorted(range(len(considered)), key=lambda place: abs(len(considered[place][2].job.source) - first))
        taken = {0, *order[:most]} if 0 in order[:most] else {0, *order[: most - 1]}
        for place, each in enumerate(considered):
            if place not in taken:
                heappush(lane, each)
        return [considered[place][2] for place in sorted(taken)]

    def _decode_batch(self, lane: Lane, pieces: list[Piece]) -> None:
        """Decode some segments, and finish the texts whose segments are then all done."""
        known: set[int] = set()

        def take(number: int, parts: list[Part]) -> None:
            known.add(number)
            self._take(pieces[number], parts)

        try:
            watched = growing([(piece.text.watched, piece.place) for piece in pieces])
            found = lane.decode([piece.job for piece in pieces], take, watched)
        except Exception as error:
            left = [piece for number, piece in enumerate(pieces) if number not in known]
            if len(pieces) > 1:  # one of the segments caused the error; try each on its own
                for piece in left:
                    self._decode_batch(lane, [piece])
            elif left:
                with self._changed:
                    self._decoding -= 1
                self._fail(pieces[0].text, error)
            return
        for number, parts in enumerate(found):
            if number not in known:
                self._take(pieces[number], parts)

    def _take(self, piece: Piece, parts: list[Part]) -> None:
        """Store the result of a segment, and finish its text if no segment is missing."""
        text = piece.text
        with self._changed:  # another worker may have another segment of the text
            self._decoding -= 1
            text.found[piece.place] = parts
            text.missing -= 1
            done = not text.missing
        if done:
            self._end(text)

    def _end(self, text: WaitingText) -> None:
        try:
            made = text.begun.end(text.found)
        except Exception as error:
            self._fail(text, error)
            return
        with self._changed:
            if isinstance(made, BegunText):
                text.cut_as(made)
                if made.jobs:
                    self._queue(text)
                    return
                made = text.begun.end(text.found)
            assert isinstance(made, Translation)  # noqa: S101 - what is cut at its lines is not cut again
            self._forget(text)
            if text.key is not None and not text.begun.lane.evidence:  # evidence is large, and seldom asked for twice
                self._cache.put(text.key, made)
            text.hand_over(made)

    def _fail(self, text: WaitingText, error: Exception) -> None:
        with self._changed:
            self._forget(text)
            text.refuse(error)

    def _forget(self, text: WaitingText) -> None:
        """Let no further request join this text; called with the lock."""
        if text.key is not None and self._in_flight.get(text.key) is text:
            del self._in_flight[text.key]
