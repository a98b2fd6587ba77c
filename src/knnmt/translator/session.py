"""A session: texts with the same settings are prepared, their segments decoded, and their translations finished.

session = translator.session(beam=5)
prepared = session.prepare(texts)                       # cut into segments; matches are found already
[parts] = prepared[0].lane.decode([segments])           # segments of any texts of the same lane, also of other sessions
made = prepared[0].finish(parts)                        # when all segments of a text are decoded

`Session.translations` does this for a stream of texts; the service forms batches from the texts of many sessions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from knnmt.config import DecodingConfig
from knnmt.engine.batching import batches_by_length
from knnmt.errors import KnnmtError, NoTranslationWarning
from knnmt.progress import ignore
from knnmt.protection.marked import Marked
from knnmt.translator.assembly import Part
from knnmt.translator.call import Call, SourceText, TextMemory
from knnmt.translator.directions import Directing
from knnmt.translator.memories import Memories, Request, RequestedLanguages, Store
from knnmt.translator.segments import Job
from knnmt.translator.stages import OnPartialTexts, OnSegment, OpenText, Stages
from knnmt.translator.translation import Translation


class Window:
    """The texts of a window, each with some segments, which are numbered across all texts."""

    def __init__(self, segments: Sequence[int]) -> None:
        self._waiting = list(segments)  # segments of each text that are not decoded yet
        self._text_of = [text for text, count in enumerate(segments) for _ in range(count)]
        self._counts = segments
        self._next = self._first_segment = 0
        self._done = self._waiting.count(0)

    def mark_decoded(self, segments: Iterable[int]) -> int:
        """Note that these segments are decoded. Return how many more texts are done, also since the beginning."""
        for segment in segments:
            text = self._text_of[segment]
            self._waiting[text] -= 1
            self._done += not self._waiting[text]
        done, self._done = self._done, 0
        return done

    def pop_ready(self) -> Iterator[tuple[int, slice]]:
        """The next texts that are done, with no unfinished text before them, each with its segments."""
        while self._next < len(self._waiting) and not self._waiting[self._next]:
            text, first = self._next, self._first_segment
            self._next, self._first_segment = text + 1, first + self._counts[text]
            yield text, slice(first, self._first_segment)


Directed = Callable[[list[Request]], list[Request]]
"""Gives languages to requests that name none."""


class SomeTranslator(Protocol):
    """What a session needs of a `Translator`."""

    memories: Memories
    stages: Stages

    def between(self, languages: RequestedLanguages) -> SomeTranslator:
        """The translator for these languages."""

    def decoding(self, **settings: object) -> DecodingConfig:
        """The search settings of a call."""

    def directing(self, memory: TextMemory | Store | None) -> Directing:
        """Gives languages to requests that name none."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Segments of one lane can be decoded together: they have the same languages and search settings.

    call: of one of them; its other settings do not affect decoding
    """

    by: SomeTranslator
    decoding: DecodingConfig
    evidence: bool
    call: Call = field(compare=False)

    def decode(
        self,
        batches: Iterable[Sequence[Job]],
        on_segment: OnSegment = ignore,
        on_partial: OnPartialTexts | None = None,
    ) -> Iterator[list[list[Part]]]:
        """The results for each segment, batch after batch.

        on_segment: is called with those that are done before others of their batch, by their number in it
        on_partial: is called with the progress of the others, by their number in their batch
        """
        return self.by.stages.decode(batches, self.call, on_segment, on_partial)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedText:
    """A text whose segments are to be decoded; a match from the memory has none."""

    text: OpenText
    lane: Lane
    call: Call

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.text.jobs

    def finish(self, found: Sequence[list[Part]]) -> Translation | PreparedText:
        """The translation; or the text cut into other segments, which have to be decoded instead."""
        stages = self.lane.by.stages
        made = stages.finished(self.text, found, self.call)
        if made is not None:
            return made
        return PreparedText(stages.cut([self.text.source_text], self.call, whole=False)[0], self.lane, self.call)

    def sameness(self) -> Hashable | None:
        """A key that is equal for texts of one session with the same translation; None if that is unknown."""
        text = self.text.source_text
        content = text.text, text.marked, text.glossary, text.syntax, self.lane.by
        if text.retrieval is None:
            return content
        if not text.retrieval.signed or text.match is not None:
            return None
        gate = None if text.retrieval.gate is None else text.retrieval.signature()
        return *content, text.retrieval.store.snapshot.number, text.retrieval.config, gate


class Session:
    """Translates texts with the same settings. Threads may share it.

    call: of texts in the languages of `translator`
    """

    def __init__(self, translator: SomeTranslator, call: Call) -> None:
        self._translator, self._call = translator, call

    def translations(self, texts: Iterable[str | Marked | Request]) -> Iterator[Translation]:
        """Translations in order, each as soon as it and all earlier ones are done."""
        remaining, failure = iter(texts), None
        directing = self._translator.directing(self._call.memory)
        while failure is None:
            prepared, failure = self._window(remaining, self._call.batching.window, directing)
            if not prepared and failure is None:
                return
            for translation in self._in_order(prepared, self._call.progress):
                yield translation
                if translation.error is not None:  # afterwards, because `translate` raises it for a single text
                    warnings.warn(translation.error, NoTranslationWarning, stacklevel=2)
        raise failure

    def prepare(self, texts: Sequence[str | Marked | Request]) -> list[PreparedText]:
        """Texts with the newest state of their stores. One that cannot be translated, or is a match, has no segments.

        Requests have languages already if these choose the model (`Translator.directed`).
        """
        prepared, failure = self._window(iter(texts), len(texts), list)
        if failure is not None:
            raise failure
        return prepared

    def _window(
        self, remaining: Iterator[str | Marked | Request], most: int, directing: Directed
    ) -> tuple[list[PreparedText], Exception | None]:
        """The next texts, at most so many, and the error that ends them, if any."""
        call = self._call
        requests, failure = call.read(remaining, most)
        if not requests:
            return [], failure
        try:
            requests = directing(requests)
        except KnnmtError as error:  # it comes before the other error, if there is one
            return [], error
        groups: dict[SomeTranslator, list[int]] = {}
        errors: dict[int, KnnmtError] = {}
        for number, request in enumerate(requests):
            try:
                groups.setdefault(self._translator.between(request.languages), []).append(number)
            except KnnmtError as error:
                errors[number] = error
        texts: dict[int, SourceText] = {}
        needed = call.stores(requests)
        for by, numbers in groups.items():
            opened = call.source_texts([requests[number] for number in numbers], by.memories, needed)
            for number, text in zip(numbers, opened, strict=True):
                if isinstance(text, KnnmtError):
                    errors[number] = text
                else:
                    texts[number] = text
        end = len(requests)
        if errors and call.on_error == "raise":
            end = min(errors)
            failure = errors[end]  # it comes before the other error, if there is one
        elif errors:
            texts |= {number: call.failed(requests[number], error) for number, error in errors.items()}
            unknown = errors.keys() - {number for numbers in groups.values() for number in numbers}
            groups.setdefault(self._translator, []).extend(unknown)
        prepared: dict[int, PreparedText] = {}
        for by, numbers in groups.items():
            some = [number for number in numbers if number < end]
            prepared |= dict(zip(some, self._cut([texts[number] for number in some], by), strict=True))
        return [prepared[number] for number in range(end)], failure

    def _cut(self, texts: Sequence[SourceText], by: SomeTranslator) -> Iterator[PreparedText]:
        """Texts between the languages of a translator. The forced start of a search differs with them."""
        decoding = self._call.decoding
        if by is not self._translator:
            decoding = by.decoding(**self._call.settings.decoding)
        call = replace(self._call, decoding=decoding)
        lane = Lane(by, decoding, call.records, call)
        return (PreparedText(text, lane, call) for text in by.stages.cut(texts, call))

    def _in_order(self, texts: Sequence[PreparedText], progress: Callable[[int], None]) -> Iterator[Translation]:
        """The translations of some texts. Segments of the same lane are decoded together."""
        jobs = [job for each in texts for job in each.jobs]
        lanes = [each.lane for each in texts for _ in each.jobs]
        found: list[list[Part]] = [[] for _ in jobs]
        window = Window([len(each.jobs) for each in texts])
        batches: list[tuple[Lane, list[int]]] = []
        for lane in dict.fromkeys(lanes):
            numbers = [number for number, each in enumerate(lanes) if each == lane]
            lane_batches = batches_by_length([len(jobs[number].source) for number in numbers], self._call.batching)
            batches += [(lane, [numbers[place] for place in batch]) for batch in lane_batches]
        batches.sort(key=lambda each: min(each[1]))  # the first waiting segment is next, so texts can be returned early
        decoded = {
            lane: lane.decode(
                [[jobs[number] for number in batch] for batch_lane, batch in batches if batch_lane == lane]
            )
            for lane in dict.fromkeys(lanes)
        }
        yield from self._finished(texts, window, found, [], progress)  # texts without words need no batch
        for lane, batch in batches:
            for number, parts in zip(batch, next(decoded[lane]), strict=True):
                found[number] = parts
            yield from self._finished(texts, window, found, batch, progress)

    def _finished(
        self,
        texts: Sequence[PreparedText],
        window: Window,
        found: Sequence[list[Part]],
        batch: Sequence[int],
        progress: Callable[[int], None],
    ) -> Iterator[Translation]:
        """The translations that can be returned now that the segments of a batch are decoded."""
        progress(window.mark_decoded(batch))
        for number, segments in window.pop_ready():
            made = texts[number].finish(found[segments])
            if isinstance(made, PreparedText):
                yield from self._in_order([made], ignore)
            else:
                yield made
