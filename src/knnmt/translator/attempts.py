"""Other searches for a text whose translation looks wrong: with stand-ins for placeholders, and with constraints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.requirements import Requirement, Requirements, Words
from knnmt.engine.base import Engine
from knnmt.engine.vocabulary import CLOSING, WrittenVocabulary, token_sequences
from knnmt.protection.content import signs_to_keep
from knnmt.protection.placeholders import Kind, Placeholder, joined_exact, writings
from knnmt.translator.assembly import Part
from knnmt.translator.code_placing import between
from knnmt.translator.evidence import Evidence
from knnmt.translator.guarding import braced_stand_ins
from knnmt.translator.segments import Job
from knnmt.translator.spans import changes_between

_PENALTY_WITH_TERMS = 0.5  # terms are not what the model would choose; placeholders, which are in its source, are
# A constrained translation may only have these characters from its source.
_SPECIAL = "%{}$\\<>&@#[]|^~`_=/0123456789€£¥₹₽₩¢‰"


class Search(Protocol):
    """Finds several hypotheses of each job, with all that is required of it."""

    def __call__(self, jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]: ...


class Attempts:
    """Searches for some jobs. Results come with the numbers of the jobs; an attempt leaves out those it cannot help."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine

    def writes(self, text: str) -> bool:
        """Whether the vocabulary can write a text."""
        return bool(text) and bool(token_sequences(self._engine.tokenizer, text))

    @cached_property
    def _vocabulary(self) -> WrittenVocabulary:
        """A table of all tokens; most runs need no constrained search."""
        return WrittenVocabulary(self._engine.tokenizer, self._engine.vocabulary_size)

    # Stand-ins -------------------------------------------------------------------------------------------------------

    def with_stand_ins(self, jobs: Mapping[int, Job], search: Search) -> Iterator[tuple[int, list[Part]]]:
        """Free search for texts in which `{1}`, `{2}` take the places of placeholders, which are then put back.

        Models write `{1}` where they change `@@name@@`, and constrained search may leave out other words.
        """
        prepared = {number: each for number, job in jobs.items() if (each := self._of_stand_ins(job)) is not None}
        if not prepared:
            return
        found = search([job for job, _ in prepared.values()], None)
        for (number, (_, stand_ins)), parts in zip(prepared.items(), found, strict=True):
            yield number, [made for part in parts if (made := self._with_placeholders(part, stand_ins)) is not None]

    def _of_stand_ins(self, job: Job) -> tuple[Job, dict[str, str]] | None:
        """A job with stand-ins, and what each stands for; None if there is nothing to replace, or it is impossible."""
        text = job.segment.text
        placeholders = [each for each in joined_exact(job.guarded.placeholders) if each.kind is Kind.EXACT]
        stand_ins = [*islice(braced_stand_ins(text, self.writes), len(placeholders))]
        if not placeholders or len(stand_ins) < len(placeholders):
            return None
        parts = [text[start:end] for start, end in between(text, placeholders)]
        (source,) = self._engine.tokenizer.encode_sources(
            ["".join(map("".join, zip(parts, [*stand_ins, ""], strict=True)))]
        )
        return replace(job, source=source), dict(zip(stand_ins, (each.text for each in placeholders), strict=True))

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
        found = Hypothesis(tuple(tokens), hypothesis.score)
        return replace(part, hypothesis=found, evidence=evidence, steps=None, decoded=part.length)

    # Constraints -----------------------------------------------------------------------------------------------------

    def constrained(self, jobs: Mapping[int, Job], search: Search) -> Iterator[tuple[int, list[Part]]]:
        """Search that must write placeholders, numbers, signs and terms, and no special character the source lacks."""
        required = {number: each for number, job in jobs.items() if (each := self._requirements(job)) is not None}
        if required:
            found = search([jobs[number] for number in required], [*required.values()])
            yield from zip(required, found, strict=True)

    def _requirements(self, job: Job) -> Requirements | None:
        """What a translation must have; None if the vocabulary cannot write it."""
        text, guarded, vocabulary = job.segment.text, job.guarded, self._vocabulary
        counts: Counter[tuple[str, ...]] = Counter()
        joined_before: set[tuple[str, ...]] = set()
        joined_after: set[tuple[str, ...]] = set()
        signs = _signs_between(text, guarded.placeholders)
        for start, end, ways in [
            *_wanted(guarded.placeholders),
            *((each.start, each.end, (each.text,)) for each in signs),
        ]:
            counts[ways] += 1
            before = text[:start][-1:]
            if before.isalnum() or before in CLOSING:
                joined_before.add(ways)
            if text[end : end + 1].isalnum():
                joined_after.add(ways)
        optional = {(each.text,) for each in signs}  # their kind is unknown, so the vocabulary may lack them
        forms = {} if job.glossary is None else {tuple(job.glossary.forms(use.term)): 1 for use in guarded.terms}
        required = []
        for ways, times in {**forms, **counts}.items():
            sequences = tuple(sequence for way in ways for sequence in token_sequences(self._engine.tokenizer, way))
            if sequences:
                required.append(Requirement(sequences, times, ways in joined_before, ways in joined_after))
            elif ways in counts and ways not in optional:
                return None
        required_parts = sorted([*guarded.placeholders, *signs], key=lambda each: each.start)
        rest = "".join(text[start:end] for start, end in between(text, required_parts))
        only = vocabulary.holding([letter for letter in _SPECIAL if letter not in rest])
        penalty = _PENALTY_WITH_TERMS if guarded.terms else 1.0
        words = Words(vocabulary.joins, vocabulary.spaced, vocabulary.closing, vocabulary.blank)
        return Requirements(required, only, words, self._engine.special_tokens.end, penalty)


def _signs_between(text: str, found: Sequence[Placeholder]) -> list[Placeholder]:
    """Signs of placeholders whose kinds are not known, such as those of `~~name~~`."""
    return [
        Placeholder(first + start, first + end, text[first + start : first + end], Kind.EXACT)
        for first, last in between(text, found)
        for start, end in signs_to_keep(text[first:last])
    ]


def _wanted(found: Sequence[Placeholder]) -> list[tuple[int, int, tuple[str, ...]]]:
    """What must be written, and in which forms: adjacent placeholders stay together."""
    signs = [each for each in found if each.kind is Kind.SIGN]
    return [
        (each.start, each.end, tuple(writings(each.text)) if each.kind is Kind.NUMBER else (each.text,))
        for each in sorted([*joined_exact(found), *signs], key=lambda each: each.start)
    ]
