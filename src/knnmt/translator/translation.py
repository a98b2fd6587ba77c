"""What a translator returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from knnmt.errors import KnnmtWarning
from knnmt.index.covering import Coverage
from knnmt.protection.marked import Marked
from knnmt.retrieval.matches import Match
from knnmt.translator.evidence import Evidence
from knnmt.translator.spans import Span
from knnmt.translator.steps import Steps

TranslationKind = Literal["exact match", "repaired match", "with memory", "model alone"]


@dataclass(frozen=True, slots=True)
class Token:
    """A target token: its id, the piece of text that the vocabulary has for it, and on request why it was chosen.

    span: with evidence, the characters of the translation's text that it gave, (start, end); may be empty
    drafted: whether it was drafted from the memory, and came in one pass of the decoder with the token before it
    """

    id: int
    text: str
    evidence: Evidence | None = None
    span: Span | None = None
    drafted: bool = field(default=False, compare=False)  # which depends on what is decoded together


@dataclass(frozen=True, slots=True)
class Caution:
    """What whoever uses a translation should know of it. kind: the class of the warning that said so"""

    kind: type[KnnmtWarning]
    message: str


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated segment.

    score: sum of log-probabilities over length ** length_penalty; over several parts, the mean by tokens; 0 for a match
        that was taken over
    log_probability: the mean of its tokens'; 0 for a match
    complete: False where the longest allowed translation was reached, so that its end may be missing
    alternatives: the next best translations, best first, where more than one was asked for; of several sentences, the
        second best of each, the third best of each, and so on; of a match, the memory's other targets
    kind: what it is: a match that was taken over, as it is or with numbers and placeholders put in; or decoded, with a
        memory or without. None where there was nothing to translate, or nothing was found
    match: the memory's segment that was taken over; of others on request, the source segment that is most like the text
    coverage: where the memory was searched by segment, how much of the text its segments hold; known before decoding
    certainty: how much of it is likely to stay when a person has looked at it, 0 to 100, where the store knows that; of
        a match that was taken over, how alike it is to all targets that the memory has for the text
    stored_source: the memory's source that the text is a form of, if it was translated in the text's place
    error: where no translation was found, why; the text is empty then, and the score -inf
    warnings: what was warned of on its account: that it was cut, or translated in parts, or not at all; that codes were
        kept by translating the pieces between them, or by leaving the source as it was; terms that are missing
    marked: the text with the codes of its source, where they are to be kept
    steps: on request, what each of its tokens was chosen from, as tensors
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
    steps: Steps | None = field(default=None, compare=False)  # tensors are not equal or unequal as a whole
