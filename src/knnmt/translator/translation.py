"""The results of a translator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from knnmt.errors import TextWarning
from knnmt.protection.marked import Marked
from knnmt.segments.covering import Coverage
from knnmt.segments.matches import Match
from knnmt.translator.evidence import Evidence
from knnmt.translator.spans import Span
from knnmt.translator.steps import Steps

TranslationKind = Literal["exact match", "repaired match", "with memory", "model alone"]


@dataclass(frozen=True, slots=True)
class Token:
    """A target token: its id, its text in the vocabulary, and on request why it was chosen.

    span: with evidence, its characters in the translation's text, (start, end); may be empty
    """

    id: int
    text: str
    evidence: Evidence | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Caution:
    """A warning about one translation. kind: the class of the warning"""

    kind: type[TextWarning]
    message: str


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated segment.

    score: sum of log-probabilities over length ** length_penalty; for several parts, the mean over tokens; 0 for a
        match
    log_probability: the mean over its tokens; 0 for a match
    complete: False if the longest allowed translation was reached, so that its end may be missing
    alternatives: the next best translations, best first, if more than one was requested; for several sentences, the
        second best of each, the third best of each, and so on; for a match, the memory's other targets
    kind: a match from the memory, exact or repaired; or decoded, with a memory or without. None if there was nothing to
        translate, or nothing was found
    match: for a match, the memory's segment; for other translations on request, the most similar source segment
    coverage: if the memory was searched by segment, how much of the text its segments hold; known before decoding
    certainty: how much of it is likely to stay after a person has edited it, 0 to 100, if the store was tuned; for a
        match, its similarity to all targets that the memory has for the text
    stored_source: the memory's source that was translated in place of the text, because the text is a form of it
    error: why no translation was found; then the text is empty and the score -inf
    warnings: the warnings about it: it was cut, translated in parts, or not translated; codes were kept by translating
        the parts between them, or by keeping the source; terms are missing
    marked: the text with the codes of its source, if they are to be kept
    steps: on request, the neighbours of each token, as tensors
    """

    source: str
    text: str
    tokens: tuple[Token, ...]
    score: float
    log_probability: float = 0.0
    complete: bool = True
    alternatives: tuple[Translation, ...] = ()
    kind: TranslationKind | None = None
    match: Match | None = None
    coverage: Coverage | None = None
    certainty: int | None = None
    stored_source: str | None = None
    error: str | None = None
    warnings: tuple[Caution, ...] = ()
    marked: Marked | None = None
    steps: Steps | None = field(default=None, compare=False)  # tensors have no single truth value for equality
