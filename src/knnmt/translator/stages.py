"""The stages of a translation by one engine: texts are cut into segments, segments are decoded, and results are joined.

With a datastore, every step of the search mixes the model's distribution with that of the memory's nearest entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any

from knnmt import timing
from knnmt.config import BatchingConfig, DecodingConfig
from knnmt.corpus.glossary import Glossary
from knnmt.corpus.sentences import has_words
from knnmt.datastore.sources import HeldSources
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.requirements import Requirements
from knnmt.decoding.search import search, search_each
from knnmt.engine.base import Engine
from knnmt.errors import ShardWarning
from knnmt.index.progress import ignore
from knnmt.protection.layout import Layout, layout_of
from knnmt.protection.tags import with_tags
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.asking import AskedText
from knnmt.translator.assembly import Part, assemble, untranslated
from knnmt.translator.evidence import evidence_of
from knnmt.translator.guarded_search import GuardedSearch
from knnmt.translator.guarding import Guarding
from knnmt.translator.job import Job
from knnmt.translator.segments import TextSegment, fitted, loses_lines, segments_of
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.steps import steps_of
from knnmt.translator.translation import Caution, Translation, TranslationKind

_MIN_BEAM_AGAIN = 5

TextsGrowing = Callable[[Callable[[], dict[int, str]]], None]
"""Is called while segments are decoded, with a function that returns the text of each so far, by its number."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is the same for all texts of a call.

    settings: complete (`TranslationSettings.resolved`)
    decoding: of the settings, for an engine
    """

    settings: TranslationSettings
    decoding: DecodingConfig
    batching: BatchingConfig
    statistics: Statistics
    progress: Callable[[int], None] = ignore
    glossary: Glossary | None = None

    @property
    def records(self) -> bool:
        """Whether the search records what evidence is made of."""
        return bool(self.settings.evidence or self.settings.steps)

    @property
    def by_sentence(self) -> bool:
        return bool(self.settings.split_sentences)


@dataclass(frozen=True, slots=True, eq=False)
class OpenText:
    """A text that is being translated, as segments that can be decoded in any batch.

    whole: a text that the memory holds as one segment is one segment here
    """

    asked: AskedText
    layout: Layout | None
    jobs: tuple[Job, ...]
    cautions: tuple[Caution, ...]
    whole: bool


class Stages:
    """How an engine translates texts, stage by stage. Threads may share it.

    Code that forms batches from several calls (`session`) uses the stages one by one.
    """

    def __init__(self, engine: Engine[Any]) -> None:
        self.engine = engine
        self._guarded_search: GuardedSearch | None = None  # needs the whole vocabulary, and not every call needs it

    def cut(self, texts: Sequence[AskedText], call: Call, whole: bool = True) -> list[OpenText]:
        """Cut texts in the engine's languages into segments. `whole`: as in `OpenText`"""
        with timing.stage("text"), _reading(each.retrieval for each in texts):
            layouts = [self._layout(each, call) for each in texts]
            segmented, sources, cautions = fitted(
                [self._segments(*each, call, whole) for each in zip(texts, layouts, strict=True)],
                self.engine.tokenizer.encode_sources,
                self.engine.max_positions,
            )
        source = iter(sources)
        return [
            OpenText(
                text,
                layout,
                tuple(Job(each, next(source), text.retrieval, self._glossary(text, call)) for each in segments),
                told,
                whole,
            )
            for text, layout, segments, told in zip(texts, layouts, segmented, cautions, strict=True)
        ]

    def decoded(self, batches: Iterable[Sequence[Job]], call: Call) -> Iterator[list[list[Part]]]:
        """The results for each segment, batch after batch."""
        asked, begun = tee(batches)
        searched = self._search(
            (([job.source for job in jobs], [job.retrieval for job in jobs]) for jobs in asked), call
        )
        for jobs in begun:
            with _reading(job.retrieval for job in jobs):
                found = self._guarded(jobs, next(searched), call)
            yield found

    def decoded_at_once(
        self, jobs: Sequence[Job], call: Call, found: Callable[[int, list[Part]], None], growing: TextsGrowing | None
    ) -> list[list[Part]]:
        """The results for each segment of one batch.

        found: is called with the numbers of segments that are done before others
        growing: is called with the progress of the others
        """
        with _reading(job.retrieval for job in jobs):
            return self._decoded_at_once(jobs, call, found, growing)

    def _decoded_at_once(
        self, jobs: Sequence[Job], call: Call, found: Callable[[int, list[Part]], None], growing: TextsGrowing | None
    ) -> list[list[Part]]:
        record = call.records  # steps are made from all records, at the end
        sources = [job.source for job in jobs]
        batch = _retrieval_of([job.retrieval for job in jobs], sources, call.statistics, record)
        known: dict[int, list[Part]] = {}

        def hear(number: int, hypotheses: list[Hypothesis]) -> None:
            coverage = None if batch is None else batch.coverage[number]
            told = () if batch is None else _left_out(batch.snapshots[number])
            parts = [Part(each, coverage=coverage, cautions=told) for each in hypotheses]
            if jobs[number].segment.guarded is not None:
                parts = self._guard.kept_at_once(jobs[number], parts) or []
            if parts:
                known[number] = parts
                found(number, parts)

        def grow(leading: Callable[[], dict[int, list[int]]]) -> None:
            decode = self.engine.tokenizer.decode
            assert growing is not None  # noqa: S101 - only then it is called
            growing(lambda: {number: decode(tokens) for number, tokens in leading().items()})

        heard = ignore if record else hear
        hypotheses = search(self.engine, sources, call.decoding, batch, heard, None if growing is None else grow)
        left = [number for number in range(len(jobs)) if number not in known]
        parts = (
            [[Part(each) for each in hypotheses[number]] for number in left]
            if batch is None
            else [each for number, each in enumerate(self._parts(batch, hypotheses, call)) if number not in known]
        )
        known |= dict(zip(left, self._guarded([jobs[number] for number in left], parts, call), strict=True))
        return [known[number] for number in range(len(jobs))]

    def finished(self, text: OpenText, found: Sequence[list[Part]], call: Call) -> Translation | None:
        """The translation of a text whose segments are decoded; None if it must be cut again, and not as a whole."""
        segments = [job.segment for job in text.jobs]
        with _reading([text.asked.retrieval]):
            if text.whole and self._loses_lines(segments, found, call):
                return None
            return self._translation(text.asked, text.layout, segments, found, text.cautions, call)

    def _layout(self, text: AskedText, call: Call) -> Layout | None:
        """The layout of a guarded text; None for others."""
        if not text.is_open or not has_words(text.text):
            return None
        if text.marked is not None or call.settings.protect:
            return layout_of(
                text.marked if text.marked is not None else with_tags(text.text, call.settings.tags or "none"),
                text.syntax,
            )
        if call.glossary is not None or text.glossary is not None:
            return Layout([(text.text,)], (0,))
        return None

    def _segments(self, text: AskedText, layout: Layout | None, call: Call, whole: bool) -> list[TextSegment]:
        held = _held(text.retrieval)
        if not text.is_open or not has_words(text.text):
            return []
        if layout is None:
            return segments_of(text.text, call.by_sentence, held, whole)
        protect = call.settings.protect or text.marked is not None
        guarding = Guarding(bool(protect), self._glossary(text, call), self._guard.writes, text.syntax)
        return guarding.segments(layout, call.by_sentence, held, whole)

    def _glossary(self, text: AskedText, call: Call) -> Glossary | None:
        glossary = text.glossary or call.glossary
        told = self.engine.languages
        return glossary and glossary.of_languages(told.source, told.target)

    @property
    def _guard(self) -> GuardedSearch:
        if self._guarded_search is None:
            self._guarded_search = GuardedSearch(self.engine)
        return self._guarded_search

    def _guarded(self, jobs: Sequence[Job], found: list[list[Part]], call: Call) -> list[list[Part]]:
        """Parts, in which those of guarded segments keep what they must."""
        guarded = [number for number, job in enumerate(jobs) if job.segment.guarded is not None]
        if not guarded:
            return found

        wider = replace(call, decoding=_wider(call.decoding))

        def search_jobs(jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
            sources, ways = [job.source for job in jobs], [job.retrieval for job in jobs]
            if required is None:
                found = next(self._search([(sources, ways)], wider))
            else:
                batch = _retrieval_of(ways, sources, call.statistics, call.records)
                hypotheses = search(self.engine, sources, wider.decoding, batch, required=required)
                found = _bare(hypotheses) if batch is None else self._parts(batch, hypotheses, call)
            return [[_with_places(each) for each in parts] for parts in found] if call.settings.evidence else found

        with timing.stage("guard"):
            chosen = [jobs[number] for number in guarded], [found[number] for number in guarded]
            kept = self._guard.kept(*chosen, search_jobs, call.decoding.n_best)
        for number, parts in zip(guarded, kept, strict=True):
            found[number] = parts
        return found

    def _loses_lines(self, segments: Sequence[TextSegment], found: Sequence[Sequence[Part]], call: Call) -> bool:
        """Whether a segment of several lines, uncut because a memory holds it, came out as something else."""
        decode = self.engine.tokenizer.decode
        best = ((segment, each[0].hypothesis) for segment, each in zip(segments, found, strict=True) if each)
        return any(
            "\n" in segment.text and loses_lines(segment, decode(hypothesis.tokens), call.by_sentence)
            for segment, hypothesis in best
        )

    def _translation(
        self,
        text: AskedText,
        layout: Layout | None,
        segments: Sequence[TextSegment],
        parts: Sequence[Sequence[Part]],
        cautions: tuple[Caution, ...],
        call: Call,
    ) -> Translation:
        if text.error is not None:
            return untranslated(text.text, text.error)
        if text.taken is not None:
            return text.taken
        with timing.stage("text"):
            certainty = None if text.memory is None else text.memory.certainty
            tokenizer, language = self.engine.tokenizer, self.engine.languages.target
            made = assemble(text.text, segments, parts, tokenizer, call.decoding, language, layout, certainty)
            match = text.memory.matcher.closest(text.text) if text.memory is not None and call.settings.match else None
            alone = text.memory is None or all(found and found[0].by_model_alone for found in parts)
            kind: TranslationKind | None = "model alone" if alone else "with memory"
            kind = kind if segments and made.error is None else None
            return replace(made, kind=kind, match=match, warnings=(*cautions, *made.warnings))

    def _search(
        self, batches: Iterable[tuple[list[list[int]], list[Retrieval | None]]], call: Call
    ) -> Iterator[list[list[Part]]]:
        """Hypotheses of one batch after another, with their evidence on request."""
        record = call.records
        asked, begun = tee(
            (sources, _retrieval_of(ways, sources, call.statistics, record)) for sources, ways in batches
        )
        for (_, batch), hypotheses in zip(begun, search_each(self.engine, asked, call.decoding), strict=True):
            if batch is None:
                yield _bare(hypotheses)
            else:
                yield self._parts(batch, hypotheses, call)

    def _parts(self, batch: BatchRetrieval, hypotheses: list[list[Hypothesis]], call: Call) -> list[list[Part]]:
        parts: list[list[Part]] = []
        of_sentences = zip(batch.of_sentences, batch.snapshots, batch.coverage, hypotheses, strict=True)
        for retrieval, snapshot, coverage, found in of_sentences:
            if retrieval is None or snapshot is None or batch.evidence is None:
                told = _left_out(snapshot)
                parts.append([Part(each, coverage=coverage, cautions=told) for each in found])
                continue
            recorded, tokenizer = batch.evidence, self.engine.tokenizer
            evidence = [
                evidence_of(each, recorded, snapshot, tokenizer) if call.settings.evidence else [] for each in found
            ]
            steps = [steps_of(each, recorded, retrieval.config.k) if call.settings.steps else None for each in found]
            told = _left_out(snapshot)
            parts.append([Part(*each, coverage, cautions=told) for each in zip(found, evidence, steps, strict=True)])
        return parts


@contextmanager
def _reading(retrievals: Iterable[Retrieval | None]) -> Iterator[None]:
    """Raise an error at the end of the block if another program changed a file of a store that texts retrieve from."""
    stores = {id(each.store): each.store.datastore for each in retrievals if each is not None}
    with ExitStack() as reading:
        for store in stores.values():
            reading.enter_context(store.reading())
        yield


def _bare(hypotheses: Sequence[Sequence[Hypothesis]]) -> list[list[Part]]:
    """The results of the model alone."""
    return [[Part(each) for each in found] for found in hypotheses]


def _with_places(part: Part) -> Part:
    """A part whose tokens get places in the text even if they have no evidence."""
    return replace(part, evidence=part.evidence or [None] * len(part.hypothesis.tokens))


def _wider(decoding: DecodingConfig) -> DecodingConfig:
    """The search for texts whose first translation looks wrong."""
    beam = max(decoding.beam, _MIN_BEAM_AGAIN)
    return replace(decoding, beam=beam, n_best=beam)


def _retrieval_of(
    ways: Sequence[Retrieval | None], sources: Sequence[Sequence[int]], statistics: Statistics, record: bool
) -> BatchRetrieval | None:
    """The retrieval of a batch, None for the model alone."""
    if not any(ways):
        return None
    groups: dict[int, list[int]] = {}
    for number, each in enumerate(ways):
        groups.setdefault(id(each), []).append(number)
    chosen = list(ways)
    for numbers in groups.values():
        if (retrieval := ways[numbers[0]]) is None:
            continue
        store = retrieval.store.for_batch([sources[number] for number in numbers], retrieval.config.segments)
        if store is not retrieval.store:
            statistics.count_left_out(len(store.snapshot.left_out) * len(numbers))
            retrieval = replace(retrieval, store=store)
            for number in numbers:
                chosen[number] = retrieval
    return BatchRetrieval(chosen, statistics, record)


def _held(retrieval: Retrieval | None) -> HeldSources | None:
    """The memory's sources that stand for texts, if they are to be used."""
    return retrieval.store.sources if retrieval is not None and retrieval.config.forms else None


def _left_out(snapshot: Snapshot | None) -> tuple[Caution, ...]:
    """Warnings about shards that did not answer."""
    return () if snapshot is None else tuple(Caution(ShardWarning, each) for each in snapshot.left_out)
