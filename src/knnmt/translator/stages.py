"""The stages of a translation by one engine: texts are cut into segments, segments are decoded, and results are joined.

With a datastore, every step of the search mixes the model's distribution with that of the memory's nearest entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.corpus.glossary import Glossary
from knnmt.corpus.sentences import has_words
from knnmt.datastore.sources import HeldSources
from knnmt.decoding.hypothesis import Hypothesis, OnPartial
from knnmt.decoding.requirements import Requirements
from knnmt.decoding.search import Batch, search, search_each
from knnmt.engine.base import Engine
from knnmt.errors import ShardWarning
from knnmt.progress import ignore
from knnmt.protection.layout import Layout, layout_of
from knnmt.protection.tags import with_tags
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.assembly import Part, assemble, untranslated
from knnmt.translator.call import Call, SourceText
from knnmt.translator.evidence import evidence_of
from knnmt.translator.guarded_search import GuardedSearch
from knnmt.translator.guarding import Guarding
from knnmt.translator.segments import Job, TextSegment, fitted, loses_lines, segments_of
from knnmt.translator.steps import steps_of
from knnmt.translator.translation import Caution, Translation, TranslationKind

_MIN_BEAM_AGAIN = 5

OnSegment = Callable[[int, list[Part]], None]
"""Is called with the number of a segment in its batch and its results, while others of the batch are still decoded."""
OnPartialTexts = Callable[[Callable[[], dict[int, str]]], None]
"""Is called while segments are decoded, with a function that returns the text of each so far, by its number."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenText:
    """A text that is being translated, as segments that can be decoded in any batch.

    whole: a text that the memory holds as one segment is one segment here
    """

    source_text: SourceText
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

    def cut(self, texts: Sequence[SourceText], call: Call, whole: bool = True) -> list[OpenText]:
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
                text_cautions,
                whole,
            )
            for text, layout, segments, text_cautions in zip(texts, layouts, segmented, cautions, strict=True)
        ]

    def decode(
        self,
        batches: Iterable[Sequence[Job]],
        call: Call,
        on_segment: OnSegment = ignore,
        on_partial: OnPartialTexts | None = None,
    ) -> Iterator[list[list[Part]]]:
        """The results for each segment, batch after batch.

        on_segment: is called with those that are done before others of their batch, by their number in it
        on_partial: is called with the progress of the others, by their number in their batch
        """
        upcoming, begun = tee(batches)
        searches: deque[_Search] = deque()

        def searched() -> Iterator[Batch]:
            for jobs in upcoming:
                searches.append(_Search(self, jobs, call, on_segment))
                yield searches[-1].batch(self._on_partial(on_partial))

        hypotheses = search_each(self.engine, searched(), call.decoding)
        for jobs in begun:
            with _reading(job.retrieval for job in jobs):
                found = next(hypotheses)
                results = searches.popleft().results(found)
            yield results

    def _on_partial(self, on_partial: OnPartialTexts | None) -> OnPartial | None:
        if on_partial is None:
            return None
        decode = self.engine.tokenizer.decode
        return lambda leading: on_partial(lambda: {number: decode(tokens) for number, tokens in leading().items()})

    def finished(self, text: OpenText, found: Sequence[list[Part]], call: Call) -> Translation | None:
        """The translation of a text whose segments are decoded; None if it must be cut again, and not as a whole."""
        segments = [job.segment for job in text.jobs]
        with _reading([text.source_text.retrieval]):
            if text.whole and self._loses_lines(segments, found, call):
                return None
            return self._translation(text.source_text, text.layout, segments, found, text.cautions, call)

    def _layout(self, text: SourceText, call: Call) -> Layout | None:
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

    def _segments(self, text: SourceText, layout: Layout | None, call: Call, whole: bool) -> list[TextSegment]:
        held = _held(text.retrieval)
        if not text.is_open or not has_words(text.text):
            return []
        if layout is None:
            return segments_of(text.text, call.by_sentence, held, whole)
        protect = call.settings.protect or text.marked is not None
        guarding = Guarding(bool(protect), self._glossary(text, call), self.guard.writes, text.syntax)
        return guarding.segments(layout, call.by_sentence, held, whole)

    def _glossary(self, text: SourceText, call: Call) -> Glossary | None:
        glossary = text.glossary or call.glossary
        languages = self.engine.languages
        return glossary and glossary.of_languages(languages.source, languages.target)

    @property
    def guard(self) -> GuardedSearch:
        if self._guarded_search is None:
            self._guarded_search = GuardedSearch(self.engine)
        return self._guarded_search

    def guarded(self, jobs: Sequence[Job], found: list[list[Part]], call: Call) -> list[list[Part]]:
        """Parts, in which those of guarded segments keep what they must."""
        guarded = [number for number, job in enumerate(jobs) if job.segment.guarded is not None]
        if not guarded:
            return found

        wider = replace(call, decoding=_wider(call.decoding))

        def search_jobs(jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
            sources = [job.source for job in jobs]
            batch = _retrieval_of([job.retrieval for job in jobs], sources, call.statistics, call.records)
            hypotheses = search(self.engine, sources, wider.decoding, batch, required=required or ())
            found = self.parts(batch, hypotheses, call)
            return [[_with_places(each) for each in parts] for parts in found] if call.settings.evidence else found

        with timing.stage("guard"):
            chosen = [jobs[number] for number in guarded], [found[number] for number in guarded]
            guarded_parts = self.guard.guarded(*chosen, search_jobs, call.decoding.n_best)
        for number, parts in zip(guarded, guarded_parts, strict=True):
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
        text: SourceText,
        layout: Layout | None,
        segments: Sequence[TextSegment],
        parts: Sequence[Sequence[Part]],
        cautions: tuple[Caution, ...],
        call: Call,
    ) -> Translation:
        if text.error is not None:
            return untranslated(text.text, text.error)
        if text.match is not None:
            return text.match
        with timing.stage("text"):
            certainty = None if text.memory is None else text.memory.certainty
            tokenizer, language = self.engine.tokenizer, self.engine.languages.target
            made = assemble(text.text, segments, parts, tokenizer, call.decoding, language, layout, certainty)
            match = text.memory.matcher.closest(text.text) if text.memory is not None and call.settings.match else None
            alone = text.memory is None or all(found and found[0].by_model_alone for found in parts)
            kind: TranslationKind | None = "model alone" if alone else "with memory"
            kind = kind if segments and made.error is None else None
            return replace(made, kind=kind, match=match, warnings=(*cautions, *made.warnings))

    def parts(self, batch: BatchRetrieval | None, hypotheses: list[list[Hypothesis]], call: Call) -> list[list[Part]]:
        """The hypotheses of each sentence of a batch, with their evidence on request."""
        if batch is None:
            return [[Part(each) for each in found] for found in hypotheses]
        parts: list[list[Part]] = []
        sentences = zip(batch.of_sentences, batch.snapshots, batch.coverage, hypotheses, strict=True)
        for retrieval, snapshot, coverage, found in sentences:
            if retrieval is None or snapshot is None or batch.evidence is None:
                cautions = _left_out(snapshot)
                parts.append([Part(each, coverage=coverage, cautions=cautions) for each in found])
                continue
            recorded, tokenizer = batch.evidence, self.engine.tokenizer
            evidence = [
                evidence_of(each, recorded, snapshot, tokenizer) if call.settings.evidence else [] for each in found
            ]
            steps = [steps_of(each, recorded, retrieval.config.k) if call.settings.steps else None for each in found]
            cautions = _left_out(snapshot)
            parts.append(
                [Part(*each, coverage, cautions=cautions) for each in zip(found, evidence, steps, strict=True)]
            )
        return parts


class _Search:
    """A batch that is searched, and the results of its segments that are known before others."""

    def __init__(self, stages: Stages, jobs: Sequence[Job], call: Call, on_segment: OnSegment) -> None:
        self._stages, self._jobs, self._call, self._on_segment = stages, jobs, call, on_segment
        self._sources = [job.source for job in jobs]
        self._retrieval = _retrieval_of([job.retrieval for job in jobs], self._sources, call.statistics, call.records)
        self._known: dict[int, list[Part]] = {}

    def batch(self, on_partial: OnPartial | None) -> Batch:
        """What is searched. Steps are made from all records, at the end, so nothing is known before."""
        early = self._on_segment is not ignore and not self._call.records
        return Batch(self._sources, self._retrieval, self._hear if early else ignore, on_partial)

    def results(self, hypotheses: list[list[Hypothesis]]) -> list[list[Part]]:
        """The results of all segments."""
        parts = self._stages.parts(self._retrieval, hypotheses, self._call)
        left = [number for number in range(len(parts)) if number not in self._known]
        guarded = self._stages.guarded([self._jobs[each] for each in left], [parts[each] for each in left], self._call)
        known = self._known | dict(zip(left, guarded, strict=True))
        return [known[number] for number in range(len(parts))]

    def _hear(self, number: int, hypotheses: list[Hypothesis]) -> None:
        batch, job = self._retrieval, self._jobs[number]
        coverage = None if batch is None else batch.coverage[number]
        cautions = () if batch is None else _left_out(batch.snapshots[number])
        parts = [Part(each, coverage=coverage, cautions=cautions) for each in hypotheses]
        if job.segment.guarded is not None:
            parts = self._stages.guard.guarded_at_once(job, parts) or []
        if parts:
            self._known[number] = parts
            self._on_segment(number, parts)


@contextmanager
def _reading(retrievals: Iterable[Retrieval | None]) -> Iterator[None]:
    """Raise an error at the end of the block if another program changed a file of a store that texts retrieve from."""
    stores = {id(each.store): each.store.datastore for each in retrievals if each is not None}
    with ExitStack() as reading:
        for store in stores.values():
            reading.enter_context(store.reading())
        yield


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
