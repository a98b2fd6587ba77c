"""Translating texts piece by piece, for code that forms batches from the texts of many calls.

begun = Piecework(translator, beam=5).begin(requests)    # cut into segments; matches are found already
parts = begun[0].lane.decode(segments, tell)             # segments of any texts of the same lane
made = begun[0].end(parts)                               # when all segments of a text are decoded
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from knnmt.config import BatchingConfig, DecodingConfig
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.asking import Asking
from knnmt.translator.assembly import Part
from knnmt.translator.job import Job
from knnmt.translator.memories import Request
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.stages import Call, OpenText, TextsGrowing
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator


@dataclass(frozen=True, slots=True)
class Lane:
    """Segments of one lane can be decoded together: they have the same languages and search settings.

    call: of one of them; its other settings do not affect decoding
    """

    by: Translator
    decoding: DecodingConfig
    evidence: bool
    call: Call = field(compare=False)

    def decode(
        self, jobs: Sequence[Job], found: Callable[[int, list[Part]], None], growing: TextsGrowing | None = None
    ) -> list[list[Part]]:
        """The results for each segment.

        found: is called for those that are done before others, by number
        growing: is called with the progress of the others
        """
        return self.by.stages.decoded_at_once(jobs, self.call, found, growing)


@dataclass(frozen=True, slots=True, eq=False)
class BegunText:
    """A text whose segments are to be decoded; a match from the memory has none."""

    text: OpenText
    lane: Lane
    call: Call

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.text.jobs

    def end(self, found: Sequence[list[Part]]) -> Translation | BegunText:
        """The translation; or the text cut into other segments, which have to be decoded instead."""
        by = self.lane.by
        made = by.stages.finished(self.text, found, self.call)
        return (
            BegunText(by.stages.cut([self.text.asked], self.call, whole=False)[0], self.lane, self.call)
            if made is None
            else made
        )

    def sameness(self) -> Hashable | None:
        """A key that is equal for texts of one `Piecework` with the same translation; None if that is unknown."""
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


class Piecework:
    """Translates the texts of calls with the same settings. Threads may share it."""

    def __init__(self, translator: Translator, settings: TranslationSettings, statistics: Statistics) -> None:
        self._translator, self._statistics = translator, statistics
        self._settings = complete = settings.over(translator.settings).resolved()
        own = complete.placeholders or ()
        self._asking = Asking(None, complete.retrieval, complete.matching, "continue", own)
        self._call(translator)  # raises errors in the settings at once

    def begin(self, requests: Sequence[Request]) -> list[BegunText]:
        """Cut texts into segments, with the newest state of their stores. A text that cannot be translated has none."""
        translator = self._translator
        asked, failure = self._asking.window(
            iter(requests), len(requests), lambda languages: translator.between(languages).memories, list
        )
        if failure is not None:
            raise failure
        of_texts = [translator.between(each.languages) for each in asked]
        begun: dict[int, BegunText] = {}
        for by in dict.fromkeys(of_texts):
            mine = [number for number, each in enumerate(of_texts) if each is by]
            call = self._call(by)
            lane = Lane(by, call.decoding, call.records, call)
            for number, text in zip(mine, by.stages.cut([asked[number] for number in mine], call), strict=True):
                begun[number] = BegunText(text, lane, call)
        return [begun[number] for number in range(len(asked))]

    def _call(self, by: Translator) -> Call:
        decoding = by.decoding(**self._settings.decoding)  # the forced start of a search differs with the languages
        return Call(self._settings, decoding, BatchingConfig(), self._statistics)
