"""Translations that keep what they must: decoded freely, checked, and searched in another way only if that fails.

    1  the free translation, if it has all placeholders, numbers and terms
    2  the free translation of the text with stand-ins ({1}) for its placeholders, which then take their places
    3  constrained search for them; without the terms if that finds nothing
    4  the pieces between placeholders, each by itself (InPiecesWarning)
    5  the source as it is (SourceKeptWarning)

If the content of what was found looks wrong (`protection/content.py`), many hypotheses of the model alone are compared
with it, and then of a search with the memory, but without special characters that the source lacks. If none looks
right, a warning says so (ContentWarning).

Then codes that were taken out are put back (`code_placing.py`). If a pair around words would end up around none, the
pieces between codes are translated separately (InPiecesWarning).

A segment that is much longer than a sentence is not searched again: for one of 380 tokens, most of them numbers, that
took 12 to 31 s of CPU time. Of 73,007 segments of IT, Medical, Law and Koran, 54 are so long, so this cannot change the
quality of more than 0.1% of them.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from knnmt.corpus.accelerators import with_accelerator
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.requirements import Requirement, Requirements, Words
from knnmt.engine.base import Engine
from knnmt.engine.vocabulary import CLOSING, WrittenVocabulary
from knnmt.errors import ContentWarning, InPiecesWarning, SourceKeptWarning, TermWarning, TextWarning
from knnmt.protection.content import Fault, content_faults
from knnmt.protection.marked import Code, joined_strings, read, written
from knnmt.protection.placeholders import Found, Kind, joined_exact, writings
from knnmt.translator.assembly import Part
from knnmt.translator.code_placing import CodePlacing, between
from knnmt.translator.evidence import Evidence
from knnmt.translator.guarded import Guarded, with_shown_codes
from knnmt.translator.guarding import braced_stand_ins
from knnmt.translator.job import Job
from knnmt.translator.segments import TextSegment, laid_out
from knnmt.translator.spans import changes_between
from knnmt.translator.translation import Caution

_PENALTY_WITH_TERMS = 0.5  # terms are not what the model would choose; placeholders, which are in its source, are
# Free text of a constrained translation may only have these characters from its source.
_LONGEST_SEARCHED_AGAIN = 160  # tokens of a source
_RUN = re.compile(r"\d+")
_SPECIAL = "%{}$\\<>&@#[]|^~`_=/0123456789€£¥₹₽₩¢‰"


class Search(Protocol):
    """Finds hypotheses. again: many, by a wider search"""

    def __call__(
        self, jobs: Sequence[Job], required: Sequence[Requirements] | None, again: bool = False
    ) -> list[list[Part]]: ...


class GuardedSearch:
    """Translates so that everything is kept that must be kept."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine
        self._codes = CodePlacing(engine)
        self._vocabulary = vocabulary = WrittenVocabulary(engine.tokenizer, engine.vocabulary_size)
        self._words = Words(vocabulary.joins, vocabulary.spaced, vocabulary.closing, vocabulary.blank)

    def writes(self, text: str) -> bool:
        """Whether the vocabulary can write a text."""
        return bool(text) and bool(self._vocabulary.sequences(text))

    def kept(self, jobs: Sequence[Job], found: Sequence[Sequence[Part]], search: Search) -> list[list[Part]]:
        """Parts whose `marked` has everything that must be kept.

        found: the results of free decoding; search: finds more
        """
        # Segments with nothing to keep are skipped.
        results = [
            self._sound(job, parts, terms=True) if job.guarded else self._as_it_is(job, parts)
            for job, parts in zip(jobs, found, strict=True)
        ]
        failed = [number for number, parts in enumerate(found) if parts and not results[number]]
        for number, filled in self._of_stand_ins({each: jobs[each] for each in failed}, search, terms=False):
            results[number] = filled
        failed = [number for number in failed if not results[number]]
        self._search_again(jobs, failed, results, search, terms=True)
        # Terms are wishes, not guarantees: without them there may be a translation.
        failed = [number for number in failed if not results[number] and jobs[number].guarded.terms]
        for number in failed:
            results[number] = self._sound(jobs[number], found[number], terms=False)
        self._search_again(jobs, [each for each in failed if not results[each]], results, search, terms=False)
        for number, parts in enumerate(found):
            if parts and not results[number]:
                results[number] = [self._in_pieces(jobs[number], parts[0], search, at_placeholders=True)]
        self._try_again(jobs, results, search)
        self._put_codes_back(jobs, results, search)
        return [[self._told(job, part) for part in parts] for job, parts in zip(jobs, results, strict=True)]

    def kept_at_once(self, job: Job, parts: Sequence[Part]) -> list[Part] | None:
        """The result of `kept`, if it is known without another pass of the model; otherwise None."""
        if any(not each.length for each in job.guarded.codes):
            return None
        sound = self._sound(job, parts, terms=True) if job.guarded else self._as_it_is(job, parts)
        if sound and self._faults(job, sound[0]):
            return None
        marked = [replace(part, marked=with_shown_codes((part.text,), job.guarded)) for part in sound]
        return [self._told(job, part) for part in marked] or None

    def _as_it_is(self, job: Job, parts: Sequence[Part]) -> list[Part]:
        decode, language = self._engine.tokenizer.decode, self._engine.languages.target
        return [replace(part, text=laid_out(job.segment, decode(part.hypothesis.tokens), language)) for part in parts]

    def _sound(self, job: Job, parts: Sequence[Part], terms: bool) -> list[Part]:
        """Those that keep what they must, with their text. terms: whether glossary terms are required"""
        needs, shown, syntax = job.guarded.needs, job.guarded.shown, job.guarded.syntax
        language = self._engine.languages.target
        found = []
        for part in parts:
            text = self._engine.tokenizer.decode(part.hypothesis.tokens)
            if not needs.unmet_in(text, shown, syntax) and not (terms and self._missing_terms(job, text)):
                found.append(replace(part, text=laid_out(job.segment, text, language)))
        return found

    def _missing_terms(self, job: Job, text: str) -> list[str]:
        glossary = job.glossary
        if glossary is None:
            return []
        return [use.term.target for use in job.guarded.terms if not glossary.is_met(use.term, text)]

    def _of_stand_ins(self, jobs: Mapping[int, Job], search: Search, terms: bool) -> Iterator[tuple[int, list[Part]]]:
        """The results of search for texts in which stand-ins take the places of placeholders, by number.

        Models write `{1}` where they change `@@name@@`, and constrained search may then leave out other words.

        terms: whether stand-ins take the places of glossary terms, too
        """
        asked = {number: each for number, job in jobs.items() if (each := self._with_stand_ins(job, terms)) is not None}
        if not asked:
            return
        found = search([job for job, _ in asked.values()], None)
        for (number, (_, stand_ins)), parts in zip(asked.items(), found, strict=True):
            filled = [made for part in parts if (made := self._with_placeholders(part, stand_ins)) is not None]
            yield number, self._sound(jobs[number], filled, terms=True)

    def _with_stand_ins(self, job: Job, terms: bool) -> tuple[Job, dict[str, str]] | None:
        """A job with stand-ins, and what each stands for; None if that is not possible."""
        text = job.segment.text
        places = [
            (each.start, each.end, each.text) for each in joined_exact(job.guarded.found) if each.kind is Kind.EXACT
        ]
        if terms:
            taken = [*places]
            places += [
                (use.start, use.end, use.term.target)
                for use in job.guarded.terms
                if all(end <= use.start or use.end <= start for start, end, _ in taken)
            ]
            places.sort()
        stand_ins = [*islice(braced_stand_ins(text, self.writes), len(places))]
        if _is_too_long(job) or not places or len(stand_ins) < len(places):
            return None
        edges = [0, *(edge for start, end, _ in places for edge in (start, end)), len(text)]
        parts = [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
        (source,) = self._engine.tokenizer.encode_sources(
            ["".join(map("".join, zip(parts, [*stand_ins, ""], strict=True)))]
        )
        return replace(job, source=source), dict(zip(stand_ins, (each for _, _, each in places), strict=True))

    def _with_placeholders(self, part: Part, stand_ins: Mapping[str, str]) -> Part | None:
        """A part with the placeholders in the places of their stand-ins; None if one is not there exactly once."""
        tokenizer, hypothesis = self._engine.tokenizer, part.hypothesis
        text = tokenizer.decode(hypothesis.tokens)
        if any(text.count(each) != 1 for each in stand_ins):
            return None
        text = re.sub("|".join(map(re.escape, stand_ins)), lambda each: stand_ins[each[0]], text)
        (tokens,) = tokenizer.encode_targets([text])
        if tokenizer.decode(tokens) != text:
            return None
        evidence: list[Evidence | None] = [None] * len(tokens) if part.evidence else []
        if part.evidence:  # of the tokens that stay
            for kind, start, end, first, last in changes_between(hypothesis.tokens, tokens):
                if kind == "equal":
                    evidence[first:last] = part.evidence[start:end]
        return replace(part, hypothesis=Hypothesis(tuple(tokens), hypothesis.score), evidence=evidence, steps=None)

    def _search_again(
        self, jobs: Sequence[Job], failed: Sequence[int], results: list[list[Part]], search: Search, terms: bool
    ) -> None:
        """Search with constraints for some jobs, in place."""
        wanted = {number: each for number in failed if (each := self._requirements(jobs[number], terms)) is not None}
        for number, parts in self._constrained(jobs, wanted, search):
            results[number] = self._sound(jobs[number], parts, terms)

    def _constrained(
        self,
        jobs: Sequence[Job] | Mapping[int, Job],
        wanted: Mapping[int, Requirements],
        search: Search,
        again: bool = False,
    ) -> Iterator[tuple[int, list[Part]]]:
        """The results of constrained search for some jobs, by number."""
        # Only those that require as much are searched together: they have as many hypotheses, and a λ that fades by the
        # sentence would also count the rows that are empty because another sentence has more.
        alike: defaultdict[int, dict[int, Requirements]] = defaultdict(dict)
        for number, each in wanted.items():
            alike[each.total][number] = each
        for asked in alike.values():
            yield from zip(asked, search([jobs[number] for number in asked], [*asked.values()], again), strict=True)

    def _requirements(self, job: Job, terms: bool, strict: bool = False) -> Requirements | None:
        """The requirements of constrained search; None if there are none, or it is not possible or takes too long.

        strict: even if nothing is required, free text may only have the special characters of its source
        """
        if _is_too_long(job):
            return None
        text, guarded = job.segment.text, job.guarded
        asked: Counter[tuple[str, ...]] = Counter()
        joined_before: set[tuple[str, ...]] = set()
        joined_after: set[tuple[str, ...]] = set()
        for start, end, ways in _wanted(guarded.found):
            asked[ways] += 1
            before = text[:start][-1:]
            if before.isalnum() or before in CLOSING:
                joined_before.add(ways)
            if text[end : end + 1].isalnum():
                joined_after.add(ways)
        if terms and job.glossary is not None:
            asked.update({tuple(job.glossary.forms(use.term)): 1 for use in guarded.terms})
        required = []
        for each, times in asked.items():
            sequences = tuple(sequence for way in each for sequence in self._vocabulary.sequences(way))
            if not sequences:
                return None
            required.append(Requirement(sequences, times, each in joined_before, each in joined_after))
        if not (required or strict):
            return None
        rest = "".join(text[start:end] for start, end in between(text, guarded.found))
        only = self._vocabulary.holding(
            [letter for letter in _SPECIAL if (guarded.found or strict) and letter not in rest]
        )
        penalty = _PENALTY_WITH_TERMS if terms and guarded.terms else 1.0
        return Requirements(required, only, self._words, self._engine.special_tokens.end, penalty)

    # Content ---------------------------------------------------------------------------------------------------------

    def _faults(self, job: Job, part: Part) -> list[Fault]:
        """What is wrong with the content of a hypothesis."""
        source, target = job.segment.text, self._engine.tokenizer.decode(part.hypothesis.tokens)
        shortest = None if job.retrieval is None else job.retrieval.store.lengths.shortest
        faults = content_faults(source, target, job.guarded.shown, job.guarded.syntax, shortest)
        return [each for each in faults if not each.number or job.retrieval is not None]

    def _try_again(self, jobs: Sequence[Job], results: list[list[Part]], search: Search) -> None:
        """Find better hypotheses for those whose content looks wrong, in place, and warn of those that stay."""
        best = {
            number: (parts[0], wrong)
            for number, parts in enumerate(results)
            if parts and parts[0].marked is None and (wrong := self._faults(jobs[number], parts[0]))
        }
        if not best:
            return
        with_terms = {number: jobs[number] for number in best if jobs[number].guarded.terms}
        for number, parts in self._of_stand_ins(with_terms, search, terms=True):
            ranked = [best[number], *((part, self._faults(jobs[number], part)) for part in parts)]
            best[number] = min(ranked, key=lambda each: len(each[1]))
        spelled: dict[int, list[str]] = {}  # numbers that the model alone writes, too: the source has them in words
        for strict in (False, True):
            left = {
                number: jobs[number] for number, (_, wrong) in best.items() if wrong and not _is_too_long(jobs[number])
            }
            asked = left if strict else {number: replace(job, retrieval=None) for number, job in left.items()}
            for number, parts in self._others(asked, results, search, strict):
                spelled.setdefault(number, [run for part in parts[:1] for run in _RUN.findall(part.text)])
                ranked = [best[number], *((part, self._faults(jobs[number], part)) for part in parts)]
                still = [
                    (part, [each for each in wrong if each.number not in spelled[number]]) for part, wrong in ranked
                ]
                best[number] = min(still, key=lambda each: len(each[1]))
        for number, (part, wrong) in best.items():
            told = tuple(
                _caution(ContentWarning, f"the translation {each.message}", jobs[number].segment) for each in wrong
            )
            results[number] = [replace(part, cautions=(*part.cautions, *told)), *results[number][1:]]

    def _others(
        self, jobs: Mapping[int, Job], results: Sequence[Sequence[Part]], search: Search, strict: bool
    ) -> Iterator[tuple[int, list[Part]]]:
        """Other hypotheses that keep what the best one keeps, by number. strict: as for `_requirements`"""
        terms = {number: not self._missing_terms(job, results[number][0].text) for number, job in jobs.items()}
        wanted = {number: self._requirements(job, terms[number], strict) for number, job in jobs.items()}
        free = [number for number, each in wanted.items() if each is None]
        found = zip(free, search([jobs[number] for number in free], None, again=True), strict=True) if free else ()
        bound = {number: each for number, each in wanted.items() if each is not None}
        for number, parts in (*found, *self._constrained(jobs, bound, search, again=True)):
            yield number, self._sound(jobs[number], parts, terms[number])

    # Codes that were taken out ---------------------------------------------------------------------------------------

    def _put_codes_back(self, jobs: Sequence[Job], results: list[list[Part]], search: Search) -> None:
        """Give every part its marked text, in place."""
        waiting: list[tuple[int, int]] = []
        for number, job in enumerate(jobs):
            for rank, part in enumerate(results[number]):
                if part.marked is not None:
                    continue
                if any(not each.length for each in job.guarded.codes):
                    waiting.append((number, rank))
                else:
                    results[number][rank] = replace(part, marked=with_shown_codes((part.text,), job.guarded))
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
            borders |= {edge for each in guarded.found for edge in (each.start, each.end)}
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
        asked = [jobs[number] for number in words]
        done = dict(zip(words, self.kept(asked, search(asked, None), search), strict=True)) if asked else {}
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
        told = [done[number][0] for number in words if done[number]]
        caution = _caution(InPiecesWarning, "translated piece by piece, between the parts that must be kept", segment)
        return Part(
            _joined([each.hypothesis for each in told]) or whole.hypothesis,
            [why for each in told for why in each.evidence],
            text=read(marked),
            marked=marked,
            cautions=(caution, *(each for part in told for each in part.cautions)),
        )

    def _told(self, job: Job, part: Part) -> Part:
        """A part with the margins of its segment, and the warnings about its terms."""
        marked = joined_strings([*job.guarded.before, *(part.marked or ()), *job.guarded.after])
        cautions = [
            *part.cautions,
            *(
                _caution(TermWarning, f"the term {each!r} is missing", job.segment)
                for each in self._missing_terms(job, part.text)
            ),
        ]
        for use in job.guarded.terms:
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
    return replace(whole, text=read(marked), marked=marked, cautions=cautions)


def _is_too_long(job: Job) -> bool:
    """Whether another search would take too long."""
    return len(job.source) > _LONGEST_SEARCHED_AGAIN


def _has_words(text: str, guarded: Guarded) -> bool:
    """Whether a piece has anything to translate."""
    return any(letter.isalpha() for start, end in between(text, guarded.found) for letter in text[start:end])


def _wanted(found: Sequence[Found]) -> list[tuple[int, int, tuple[str, ...]]]:
    """What must be written, and in which forms: adjacent placeholders stay together."""
    signs = [each for each in found if each.kind is Kind.SIGN]
    return [
        (each.start, each.end, tuple(writings(each.text)) if each.kind is Kind.NUMBER else (each.text,))
        for each in sorted([*joined_exact(found), *signs], key=lambda each: each.start)
    ]


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
