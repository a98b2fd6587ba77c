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
from knnmt.errors import NoTranslationWarning
from knnmt.index.progress import ignore
from knnmt.protection.marked import Marked
from knnmt.translator.asking import Asking, TextMemory
from knnmt.translator.assembly import Part
from knnmt.translator.directions import Directing
from knnmt.translator.job import Job
from knnmt.translator.memories import AskedLanguages, Memories, Request, Store
from knnmt.translator.stages import Call, OnPartialTexts, OnSegment, OpenText, Stages
from knnmt.translator.translation import Translation
from knnmt.translator.turns import Turns


class SomeTranslator(Protocol):
    """What a session needs of a `Translator`."""

    memories: Memories
    stages: Stages

    def between(self, asked: AskedLanguages) -> SomeTranslator:
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
        return PreparedText(stages.cut([self.text.asked], self.call, whole=False)[0], self.lane, self.call)

    def sameness(self) -> Hashable | None:
        """A key that is equal for texts of one session with the same translation; None if that is unknown."""
        asked = self.text.asked
        retrieval = asked.retrieval
        if retrieval is None:
            return asked.text, asked.marked, asked.glossary, asked.syntax, self.lane.by
        if not retrieval.signed or asked.taken is not None:
            return None
        gate = None if retrieval.gate is None else retrieval.signature()
        snapshot = retrieval.store.snapshot.number
        of_text = asked.text, asked.marked, asked.glossary, asked.syntax
        return *of_text, self.lane.by, snapshot, retrieval.config, gate


class Session:
    """Translates texts with the same settings. Threads may share it.

    call: of texts in the languages of `translator`
    """

    def __init__(self, translator: SomeTranslator, asking: Asking, call: Call) -> None:
        self._translator, self._asking, self._call = translator, asking, call

    def translations(self, texts: Iterable[str | Marked | Request]) -> Iterator[Translation]:
        """Translations in order, each as soon as it and all earlier ones are done."""
        remaining, failure = iter(texts), None
        directing = self._translator.directing(self._asking.memory)
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
        self, texts: Iterator[str | Marked | Request], most: int, directing: Callable[[list[Request]], list[Request]]
    ) -> tuple[list[PreparedText], Exception | None]:
        """The next texts, at most so many, and the error that ends them, if any.

        directing: gives languages to requests that name none
        """
        between = self._translator.between
        asked, failure = self._asking.window(texts, most, lambda languages: between(languages).memories, directing)
        translators = [between(each.languages) for each in asked]
        prepared: dict[int, PreparedText] = {}
        for by in dict.fromkeys(translators):
            # The forced start of a search differs with the languages.
            decoding = self._call.decoding
            if by is not self._translator:
                decoding = by.decoding(**self._call.settings.decoding)
            call = replace(self._call, decoding=decoding)
            lane = Lane(by, decoding, call.records, call)
            mine = [number for number, each in enumerate(translators) if each is by]
            for number, text in zip(mine, by.stages.cut([asked[number] for number in mine], call), strict=True):
                prepared[number] = PreparedText(text, lane, call)
        return [prepared[number] for number in range(len(asked))], failure

    def _in_order(self, texts: Sequence[PreparedText], progress: Callable[[int], None]) -> Iterator[Translation]:
        """The translations of some texts. Segments of the same lane are decoded together."""
        jobs = [job for each in texts for job in each.jobs]
        lanes = [each.lane for each in texts for _ in each.jobs]
        found: list[list[Part]] = [[] for _ in jobs]
        turns = Turns([len(each.jobs) for each in texts])
        batches: list[tuple[Lane, list[int]]] = []
        for lane in dict.fromkeys(lanes):
            mine = [number for number, each in enumerate(lanes) if each == lane]
            of_lane = batches_by_length([len(jobs[number].source) for number in mine], self._call.batching)
            batches += [(lane, [mine[place] for place in batch]) for batch in of_lane]
        batches.sort(key=lambda each: min(each[1]))  # the first waiting segment is next, so texts can be returned early
        decoded = {
            lane: lane.decode([[jobs[number] for number in batch] for of_batch, batch in batches if of_batch == lane])
            for lane in dict.fromkeys(lanes)
        }
        yield from self._finished(texts, turns, found, [], progress)  # texts without words need no batch
        for lane, batch in batches:
            for number, parts in zip(batch, next(decoded[lane]), strict=True):
                found[number] = parts
            yield from self._finished(texts, turns, found, batch, progress)

    def _finished(
        self,
        texts: Sequence[PreparedText],
        turns: Turns,
        found: Sequence[list[Part]],
        batch: Sequence[int],
        progress: Callable[[int], None],
    ) -> Iterator[Translation]:
        """The translations that can be returned now that the segments of a batch are decoded."""
        progress(turns.decoded(batch))
        for number, mine in turns.come():
            made = texts[number].finish(found[mine])
            if isinstance(made, PreparedText):
                yield from self._in_order([made], ignore)
            else:
                yield made
