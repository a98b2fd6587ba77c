"""`Batcher` decodes the texts of all requests together.

A few threads serve all requests. Two threads take texts in: they look up exact matches, which need no decoding, and cut
the other texts into segments. Only one of them takes long texts, so short ones need not wait for it. Workers decode
batch after batch. Clients take turns by the cost of their texts (`fair_queue.py`), and so do the requests of a client.
A batch starts with the segment whose turn it is, and is filled with waiting segments of similar length, whatever their
request or domain. Its cost has a limit, so a new segment waits for about one batch and not for all earlier requests,
however long their texts and wide their beams are. A text is returned when all its segments are done, even while other
segments of the batch are still being decoded.

On a CPU there are two workers. Two simultaneous batches with half of the cores each finish sooner than one after the
other with all cores, because no core waits for others at the end of every operation. One more worker decodes segments
that cost much more than usual ones, one batch at a time, and gives way to others (`waiting_pieces.py`).

Equal texts of a client that wait or are being decoded are decoded once. Recent results are remembered until a store
changes.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, Thread

from knnmt.retrieval.statistics import Statistics
from knnmt.service.problems import ending
from knnmt.service.scheduling.fair_queue import FairQueue
from knnmt.service.scheduling.result_cache import ResultCache
from knnmt.service.scheduling.waiting_pieces import AbandonedError, Piece, WaitingPieces, giving_way
from knnmt.service.scheduling.waiting_texts import LONG, Arrival, Owner, WaitingText, Watch, growing, hand_over, refuse
from knnmt.translator.assembly import Part
from knnmt.translator.memories import Request
from knnmt.translator.session import PreparedText, Session
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator

_log = logging.getLogger("knnmt.service")
_INTAKES = 2
_MAX_SESSIONS = 256
_LINGER, _MAX_LINGER_SECONDS = 0.03, 0.02  # of a batch's time: clients that just got results often ask again soon


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch that was decoded, for metrics. waiting: segments that were left"""

    segments: int
    seconds: float
    waiting: int


class Batcher:
    """Translates texts of many requests. Threads may share it.

    batch: segments that are decoded together, at most; if they cost more than usual ones, fewer
    workers: batches that are decoded at the same time, by threads that share the cores; if there are several, one more
        decodes costly segments
    cached: results that are remembered, at most
    on_batch: is called with a report of every batch
    """

    def __init__(
        self,
        translator: Translator,
        batch: int,
        cached: int,
        on_batch: Callable[[BatchReport], None] = lambda _report: None,
        workers: int = 1,
    ) -> None:
        self.statistics = Statistics()
        self._translator, self._batch, self._on_batch = translator, batch, on_batch
        self._changed = Condition()
        self._arrived = FairQueue[Arrival]()
        self._pieces = WaitingPieces(batch)
        self._taking_in = 0  # texts that have arrived and are not cut yet
        self._cutting_long = False
        self._decoding = 0  # segments
        self._workers, self._busy, self._costly = workers, 0, 0
        self._decoded_cost = self._decoded_seconds = 0.0  # of all batches
        self._lingers_until = 0.0
        self._texts = set[WaitingText]()  # that are cut and not done
        self._in_flight: dict[Hashable, WaitingText] = {}
        self._cache = ResultCache(cached)
        self._sessions: OrderedDict[TranslationSettings, Session] = OrderedDict()
        self._closed = self._refusing = False
        self._threads = [
            *(Thread(target=self._take_in, name="knnmt-intake", daemon=True) for _ in range(_INTAKES)),
            *(Thread(target=self._decode, name="knnmt-decode", daemon=True) for _ in range(workers + (workers > 1))),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How much is not done: texts that are not cut yet, and segments."""
        return self._taking_in + len(self._pieces) + self._decoding

    @property
    def hits(self) -> int:
        """Texts that needed no decoding, because an equal text was being decoded or its result was remembered."""
        return self._cache.hits

    def require_open(self) -> None:
        """Raise a problem if nothing more is accepted."""
        if self._closed:
            raise ending()

    def submit(
        self,
        requests: Sequence[Request],
        settings: TranslationSettings,
        watches: Sequence[Watch] | None = None,
        client: Hashable = None,
    ) -> list[Future[Translation]]:
        """Have texts translated. Cancel a future if its text is no longer wanted; texts that nobody wants are not
        decoded.

        watches: one for each text; each receives the progress while its text is decoded
        client: whoever sent the texts; clients take turns
        """
        # Complete settings: texts with equal ones are decoded, and remembered, together.
        settings = settings.over(self._translator.settings).resolved()
        owner: Owner = client, object()
        watched: Sequence[Watch | None] = [None] * len(requests) if watches is None else watches
        arrivals = [
            Arrival(each, settings, owner, Future(), watch) for each, watch in zip(requests, watched, strict=True)
        ]
        with self._changed:
            self.require_open()
            self.session(settings)  # raises errors in the settings at once
            for each in arrivals:
                self._arrived.put(owner, each, each.cost)
            self._taking_in += len(arrivals)
            self._changed.notify_all()
        return [each.wanted for each in arrivals]

    def session(self, settings: TranslationSettings) -> Session:
        """The session of texts with these settings."""
        with self._changed:
            found = self._sessions.pop(settings, None) or self._translator.session(
                settings=settings, datastore=None, on_error="continue", statistics=self.statistics
            )
            self._sessions[settings] = found
            while len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
            return found

    def refuse(self) -> None:
        """Accept nothing more, and refuse everything that is not done."""
        with self._changed:
            self._closed = self._refusing = True
            arrived = set(self._arrived.in_turn())
            self._arrived.forget(arrived)
            self._taking_in -= len(arrived)
            for text in self._texts:
                text.refuse(ending())
            refuse([each.wanted for each in arrived], ending())
            self._changed.notify_all()

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
            groups: dict[TranslationSettings, list[Arrival]] = {}
            for each in arrived:
                if not each.wanted.cancelled():
                    groups.setdefault(each.settings, []).append(each)
            for settings, group in groups.items():
                self._begin(self.session(settings), group)
            with self._changed:
                self._taking_in -= len(arrived)
                self._cutting_long &= not arrived[0].is_long
                self._changed.notify_all()

    def _next_arrivals(self) -> list[Arrival]:
        """Texts whose turn it is; none when the batcher is closed and all are taken in."""
        with self._changed:
            while True:
                if arrived := self._portion():
                    self._arrived.remove(set(arrived))
                    self._cutting_long |= arrived[0].is_long
                    return arrived
                if self._closed and not self._arrived:
                    return []
                self._changed.wait()

    def _portion(self) -> list[Arrival]:
        """The texts that are cut next: a long one, or several; called with the lock. They still wait."""
        portion, cost = list[Arrival](), 0.0
        for each in self._arrived.in_turn(self._pieces.clients_with_enough()):
            if each.is_long and self._cutting_long:
                continue
            cost += each.cost
            if portion and cost > LONG:
                break
            portion.append(each)
        return portion

    def _begin(self, session: Session, group: list[Arrival]) -> None:
        try:
            begun = session.prepare([each.request for each in group])
        except Exception as error:
            if len(group) == 1:
                refuse([group[0].wanted], error)
            else:  # one of the texts caused the error; try each on its own
                for each in group:
                    self._begin(session, [each])
            return
        for text, arrival in zip(begun, group, strict=True):
            self._enqueue(session, text, arrival)

    def _enqueue(self, session: Session, begun: PreparedText, arrival: Arrival) -> None:
        same = begun.sameness()
        client = arrival.owner[0]
        key = None if same is None else (session, same)
        with self._changed:
            if self._refusing:
                refuse([arrival.wanted], ending())
                return
            if key is not None and (known := self._cache.get(key)) is not None:
                hand_over([arrival.wanted], known)
                return
            if key is not None and (twin := self._in_flight.get((client, key))) is not None:
                self._cache.hits += 1
                twin.wanted.append(arrival.wanted)
                twin.watched.add(arrival.wanted, arrival.watch)
                return
            text = WaitingText(begun, arrival.owner, key, [arrival.wanted])
            text.watched.add(arrival.wanted, arrival.watch)
            self._texts.add(text)
            if begun.jobs:
                if key is not None:
                    self._in_flight[client, key] = text
                self._queue(text)
                return
        self._end(text)

    def _queue(self, text: WaitingText) -> None:
        """Queue the segments of a text; called with the lock."""
        for place in range(len(text.begun.jobs)):
            self._pieces.put(Piece(text, place))
        self._changed.notify_all()

    # Decoding ---------------------------------------------------------------------------------------------------------

    def _decode(self) -> None:
        while pieces := self._next_batch():
            began = time.perf_counter()
            self._decode_batch(pieces)
            seconds = time.perf_counter() - began
            with self._changed:
                self._busy -= 1
                self._costly -= self._pieces.is_costly(pieces[0])
                self._charge(pieces, seconds)
                waiting = self.waiting
                self._changed.notify_all()
            self._lingers_until = time.perf_counter() + min(_LINGER * seconds, _MAX_LINGER_SECONDS)
            self._on_batch(BatchReport(len(pieces), seconds, waiting))

    def _charge(self, pieces: list[Piece], seconds: float) -> None:
        """Charge clients for batches that took longer than others of their cost; called with the lock."""
        cost = sum(piece.cost for piece in pieces)
        self._decoded_cost += cost
        self._decoded_seconds += seconds
        self._pieces.charge(pieces, max(0.0, seconds * self._decoded_cost / self._decoded_seconds - cost))

    def _next_batch(self) -> list[Piece]:
        """The next batch: the segment whose turn it is, and those of its lane with the most similar lengths.

        It is empty when the batcher is closed and everything is done.
        """
        with self._changed:
            self._linger()
            while True:
                usual = self._busy - self._costly  # batches; if there is one worker, it decodes both kinds
                for text in self._pieces.drop_abandoned():
                    self._forget(text)  # an equal text that comes later is decoded anew
                free = max(1, self._workers - usual)
                if pieces := self._pieces.take_batch(free, not self._costly, usual < self._workers):
                    self._decoding += len(pieces)
                    self._busy += 1
                    self._costly += self._pieces.is_costly(pieces[0])
                    self._changed.notify_all()  # more texts may be cut
                    return pieces
                if self._closed and not self._taking_in and not self._pieces:
                    return []
                self._changed.wait()

    def _others(self) -> int:
        """Usual batches that are decoded, and clients that wait."""
        return self._busy - self._costly + self._pieces.clients

    def _linger(self) -> None:
        """Wait a moment after a batch for the next one to fill; called with the lock."""
        while len(self._pieces) < self._batch and not self._closed:
            if (seconds := self._lingers_until - time.perf_counter()) <= 0:
                return
            self._changed.wait(seconds)

    def _decode_batch(self, pieces: list[Piece]) -> None:
        """Decode some segments, and finish the texts whose segments are then all done."""
        known: set[int] = set()

        def take(number: int, parts: list[Part]) -> None:
            known.add(number)
            self._take(pieces[number], parts)

        try:
            watched = growing([(piece.text.watched, piece.place) for piece in pieces])
            if self._pieces.is_costly(pieces[0]):
                watched = giving_way(pieces, self._others, watched)
            [found] = pieces[0].lane.decode([[piece.job for piece in pieces]], take, watched)
        except Exception as error:
            left = [piece for number, piece in enumerate(pieces) if number not in known]
            if isinstance(error, AbandonedError):
                self._put_back(left)
            elif len(pieces) > 1:  # one of the segments caused the error; try each on its own
                for piece in left:
                    self._decode_batch([piece])
            elif left:
                with self._changed:
                    self._decoding -= 1
                self._fail(pieces[0].text, error)
            return
        for number, parts in enumerate(found):
            if number not in known:
                self._take(pieces[number], parts)

    def _put_back(self, pieces: Sequence[Piece]) -> None:
        """Let segments wait that nobody wanted, unless that is still so."""
        with self._changed:
            self._decoding -= len(pieces)
            for piece in pieces:
                if piece.text.abandoned:
                    self._forget(piece.text)
                else:
                    self._pieces.put(piece)

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
            made = text.begun.finish(text.found)
        except Exception as error:
            self._fail(text, error)
            return
        with self._changed:
            if isinstance(made, PreparedText):
                text.cut_as(made)
                if made.jobs:
                    self._queue(text)
                    return
                made = text.begun.finish(text.found)
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
        self._texts.discard(text)
        key = text.owner[0], text.key
        if self._in_flight.get(key) is text:
            del self._in_flight[key]
