"""Translations that keep what they must, and whose content looks right: one sequence of searches.

    1  free search
    2  free search for the text with stand-ins ({1}, {2}) for its placeholders, which then take their places
    3  constrained search: it must write placeholders, numbers, signs and terms, and no special character that the
       source lacks; by the model alone if the memory brought something that the source lacks, because a search with
       such neighbours, which must not write it, repeats what comes before it
    4  the pieces between placeholders, each by itself (InPiecesWarning); what even that does not keep stays in the
       source language (SourceKeptWarning)

A text goes on only while its best translation so far lacks something that it must keep, or has a fault: a missing term,
or content that looks wrong (`protection/content.py`). Of several translations that keep everything, the first with the
fewest missing terms, and then with the fewest signs of wrong content, is the best; what it still has becomes a warning.
Pieces are for texts without any translation that keeps everything.

Then codes that were taken out are put back (`code_placing.py`). If a pair around words would end up around none, the
pieces between codes are translated separately (InPiecesWarning).

A segment that is much longer than a sentence is searched once: for one of 380 tokens, most of them numbers, constrained
search took 12 to 31 s of CPU time. Of 73,007 segments of IT, Medical, Law and Koran, 54 are so long, so this cannot
change the quality of more than 0.1% of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from knnmt.corpus.accelerators import with_accelerator
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.base import Engine
from knnmt.errors import ContentWarning, InPiecesWarning, SourceKeptWarning, TermWarning, TextWarning
from knnmt.protection.content import Fault, content_faults, invented
from knnmt.protection.marked import Code, joined_strings, read, written
from knnmt.protection.placeholders import find
from knnmt.translator.assembly import Part
from knnmt.translator.attempts import Attempts, Search
from knnmt.translator.code_placing import CodePlacing, between
from knnmt.translator.guarded import Guarded, with_shown_codes
from knnmt.translator.segments import Job, TextSegment, laid_out
from knnmt.translator.translation import Caution

_LONGEST_SEARCHED_AGAIN = 160  # tokens of a source


@dataclass(frozen=True, slots=True)
class _Judged:
    """A hypothesis that keeps what it must, with the terms that it lacks and the faults of its content."""

    part: Part
    terms: Sequence[str]
    faults: Sequence[Fault]

    @property
    def rank(self) -> tuple[int, int]:
        return len(self.terms), len(self.faults)

    @property
    def is_right(self) -> bool:
        return not self.terms and not self.faults


class GuardedSearch:
    """Translates so that everything is kept that must be kept."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine
        self._codes = CodePlacing(engine)
        self._attempts = Attempts(engine)
        self.writes = self._attempts.writes

    def guarded(
        self, jobs: Sequence[Job], found: Sequence[Sequence[Part]], search: Search, n_best: int = 1
    ) -> list[list[Part]]:
        """Parts whose `marked` has everything that must be kept, at most `n_best` for each job, best first.

        found: the results of free decoding; search: finds more
        """
        judged = [self._judged(job, parts) for job, parts in zip(jobs, found, strict=True)]
        tried = [
            number
            for number, parts in enumerate(found)
            if parts and len(jobs[number].source) <= _LONGEST_SEARCHED_AGAIN
        ]
        for attempt in (self._attempts.with_stand_ins, partial(self._constrained, found)):
            wrong = {number: jobs[number] for number in tried if not (judged[number] and judged[number][0].is_right)}
            for number, parts in attempt(wrong, search):
                texts = {each.part.text for each in judged[number]}
                more = [each for each in self._judged(jobs[number], parts) if each.part.text not in texts]
                judged[number] = sorted([*judged[number], *more], key=lambda each: each.rank)
        results = [
            self._warned(job, of_job)
            if of_job or not parts
            else [self._in_pieces(job, parts[0], search, at_placeholders=True)]
            for job, of_job, parts in zip(jobs, judged, found, strict=True)
        ]
        self._put_codes_back(jobs, results, search)
        return [
            [self._completed(job, part) for part in parts[:n_best]] for job, parts in zip(jobs, results, strict=True)
        ]

    def guarded_at_once(self, job: Job, parts: Sequence[Part]) -> list[Part] | None:
        """The result of `guarded`, if it is known without another pass of the model; otherwise None."""
        if any(not each.length for each in job.guarded.codes):
            return None
        judged = self._judged(job, parts)
        if not (judged and judged[0].is_right):
            return None
        return [self._completed(job, each.part) for each in judged]

    def _judged(self, job: Job, parts: Sequence[Part]) -> list[_Judged]:
        """Those that keep what they must, with their texts, best first."""
        guarded = job.guarded
        needs, shown = (guarded.needs, guarded.shown) if guarded else (None, frozenset[str]())
        language = self._engine.languages.target
        judged = []
        for part in parts:
            text = self._engine.tokenizer.decode(part.hypothesis.tokens)
            if needs is None or not needs.unmet_in(text, shown, guarded.syntax):
                terms, faults = self._missing_terms(job, text), self._faults(job, text)
                judged.append(_Judged(replace(part, text=laid_out(job.segment, text, language)), terms, faults))
        return sorted(judged, key=lambda each: each.rank)

    def _missing_terms(self, job: Job, text: str) -> list[str]:
        glossary = job.glossary
        if glossary is None:
            return []
        return [use.term.target for use in job.guarded.terms if not glossary.is_met(use.term, text)]

    def _faults(self, job: Job, text: str) -> list[Fault]:
        """What is wrong with the content of a translation."""
        shortest = None if job.retrieval is None else job.retrieval.store.lengths.shortest
        faults = content_faults(job.segment.text, text, job.guarded.shown, job.guarded.syntax, shortest)
        return [each for each in faults if not each.number or job.retrieval is not None]

    def _constrained(
        self, found: Sequence[Sequence[Part]], jobs: Mapping[int, Job], search: Search
    ) -> Iterator[tuple[int, list[Part]]]:
        """Constrained search, by the model alone for jobs into whose translation the memory brought something.

        found: the results of free decoding
        """
        alone = {
            number: replace(job, retrieval=None)
            for number, job in jobs.items()
            if job.retrieval is not None and self._invents(job, found[number][0])
        }
        yield from self._attempts.constrained(
            {number: job for number, job in jobs.items() if number not in alone}, search
        )
        for number, parts in self._attempts.constrained(alone, search):
            yield number, [replace(part, by_model_alone=True) for part in parts]

    def _invents(self, job: Job, part: Part) -> bool:
        """Whether a translation has a placeholder, a tag, a number or a sign that its source lacks."""
        text, guarded = self._engine.tokenizer.decode(part.hypothesis.tokens), job.guarded
        has = find(text, guarded.shown, guarded.syntax)
        return bool(invented(job.segment.text, text, has, guarded.placeholders))

    def _warned(self, job: Job, judged: Sequence[_Judged]) -> list[Part]:
        """The parts, the best with warnings about its content."""
        parts = [each.part for each in judged]
        if judged and judged[0].faults:
            cautions = [
                _caution(ContentWarning, f"the translation {each.message}", job.segment) for each in judged[0].faults
            ]
            parts[0] = replace(parts[0], cautions=(*parts[0].cautions, *cautions))
        return parts

    # Codes that were taken out ---------------------------------------------------------------------------------------

    def _put_codes_back(self, jobs: Sequence[Job], results: list[list[Part]], search: Search) -> None:
        """Give every part with codes its marked text, in place."""
        waiting: list[tuple[int, int]] = []
        for number, job in enumerate(jobs):
            if any(not each.length for each in job.guarded.codes):
                waiting += [(number, rank) for rank, part in enumerate(results[number]) if part.marked is None]
        if not waiting:
            return
        alignments = self._codes.alignments([(jobs[number], results[number][rank]) for number, rank in waiting])
        broken: set[int] = set()
        for (number, rank), alignment in zip(waiting, alignments, strict=True):
            job, part = jobs[number], results[number][rank]
            marked, whole = self._codes.arranged(job, part, alignment)
            if whole:
                results[number][rank] = replace(part, marked=marked)
            elif rank == 0:
                broken.add(number)
        for number in {number for number, _ in waiting}:
            if number in broken:
                results[number] = [self._in_pieces(jobs[number], results[number][0], search, at_placeholders=False)]
            results[number] = [part for part in results[number] if part.marked is not None]

    # Pieces ----------------------------------------------------------------------------------------------------------

    def _in_pieces(self, job: Job, whole: Part, search: Search, at_placeholders: bool) -> Part:
        """The pieces of a text between its codes, and optionally its placeholders, each translated separately."""
        segment, guarded = job.segment, replace(job.guarded, before=(), after=())
        borders = {each.offset for each in guarded.codes if not each.length}
        if at_placeholders:
            borders |= {edge for each in guarded.placeholders for edge in (each.start, each.end)}
        edges = sorted({0, *borders, len(segment.text)})
        if len(edges) <= 2:
            return _source_kept(segment, guarded, whole)
        cut = guarded.cut_at(segment.text, edges[1:-1])
        sources = self._engine.tokenizer.encode_sources([text for text, _ in cut])
        beginnings = [segment.begins, *[False] * (len(cut) - 1)]
        jobs = [
            Job(TextSegment(text, begins=begins, guarded=each), source, job.retrieval, job.glossary)
            for begins, (text, each), source in zip(beginnings, cut, sources, strict=True)
        ]
        words = [number for number, (text, each) in enumerate(cut) if _has_words(text, each)]
        if words and segment.mark:
            first = replace(jobs[words[0]].segment, mark=segment.mark, key=segment.key)
            jobs[words[0]] = replace(jobs[words[0]], segment=first)
        waiting = [jobs[number] for number in words]
        done = dict(zip(words, self.guarded(waiting, search(waiting, None), search), strict=True)) if waiting else {}
        parts = [
            done[number][0] if done.get(number) else _source_kept(each.segment, each.guarded, whole, silent=True)
            for number, each in enumerate(jobs)
        ]
        marked = joined_strings([piece for part in parts for piece in part.marked or ()])
        text = read(marked)
        for each in guarded.codes:  # line ends that are written with a backslash look like placeholders
            text = text.replace(each.code.raw, " ", 1) if each.blank else text
        if guarded.needs.unmet_in(text, guarded.shown, guarded.syntax):
            return _source_kept(segment, guarded, whole)
        translated = [done[number][0] for number in words if done[number]]
        caution = _caution(InPiecesWarning, "translated piece by piece, between the parts that must be kept", segment)
        return Part(
            _joined([each.hypothesis for each in translated]) or whole.hypothesis,
            [why for each in translated for why in each.evidence],
            text=read(marked),
            marked=marked,
            cautions=(caution, *(each for part in translated for each in part.cautions)),
            decoded=max((part.length for part in translated), default=0),
        )

    def _completed(self, job: Job, part: Part) -> Part:
        """A part with the margins of its segment, and the warnings about its terms."""
        guarded = job.guarded
        marked = with_shown_codes((part.text,), guarded) if part.marked is None else part.marked
        marked = joined_strings([*guarded.before, *marked, *guarded.after])
        cautions = [
            *part.cautions,
            *(
                _caution(TermWarning, f"the term {each!r} is missing", job.segment)
                for each in self._missing_terms(job, part.text)
            ),
        ]
        for use in guarded.terms:
            if use.contradicted is not None:
                both = f"the glossary has {use.term.target!r} and {use.contradicted!r} for {use.term.source!r}"
                cautions.append(_caution(TermWarning, f"{both}, of which the first counts", job.segment))
        return replace(part, marked=marked, text=written(marked), cautions=tuple(cautions))


def _source_kept(segment: TextSegment, guarded: Guarded, whole: Part, silent: bool = False) -> Part:
    """The source in place of a translation. silent: without a warning, for a placeholder or a mark between codes"""
    placed = [(each.offset, each) for each in guarded.codes]
    parts: list[str | Code] = [*guarded.before]
    place = 0
    for offset, each in placed:
        parts += [segment.text[place:offset], each.code.raw if each.blank else each.code]
        place = offset + each.length + each.blank
    marked = joined_strings([*parts, segment.text[place:], *guarded.after])
    if segment.mark:
        first = next(
            number for number, each in enumerate(marked) if isinstance(each, str) and any(map(str.isalpha, each))
        )
        text = with_accelerator(str(marked[first]), segment.mark, segment.key)
        marked = (*marked[:first], text, *marked[first + 1 :])
    cautions = (
        ()
        if silent
        else (_caution(SourceKeptWarning, "stays untranslated, because no translation kept everything", segment),)
    )
    return replace(whole, text=read(marked), marked=marked, cautions=cautions, decoded=0)


def _has_words(text: str, guarded: Guarded) -> bool:
    """Whether a piece has anything to translate."""
    return any(letter.isalpha() for start, end in between(text, guarded.placeholders) for letter in text[start:end])


def _caution(kind: type[TextWarning], words: str, segment: TextSegment) -> Caution:
    message = f"{words}: {segment.text[:60]!r}"
    warnings.warn(message, kind, stacklevel=2)
    return Caution(kind, message)


def _joined(hypotheses: Sequence[Hypothesis]) -> Hypothesis | None:
    """The hypotheses of successive pieces."""
    if not hypotheses:
        return None
    count = sum(len(each.tokens) for each in hypotheses)
    return Hypothesis(
        tuple(token for each in hypotheses for token in each.tokens),
        sum(each.score * len(each.tokens) for each in hypotheses) / count,
    )
