"""Translations with their tokens and warnings, also as `knnmt translate --jsonl` and the service write them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from knnmt.corpus.pairs import SegmentPair
from knnmt.errors import NoTranslationWarning, TextWarning
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


def as_json(translation: Translation) -> dict[str, object]:
    """A translation as JSON, without fields that have no value."""
    alternatives = [
        {"text": each.text, "score": each.score, "tokens": [token.text for token in each.tokens]}
        for each in translation.alternatives
    ]
    warned = [each for each in translation.warnings if each.kind is not NoTranslationWarning]  # which is its error
    cautions = [{"kind": each.kind.__name__, "message": each.message} for each in warned]
    segments: dict[SegmentPair, int] = {}  # the steps of a sentence find the same segments again and again
    evidence = [token.evidence and _told(token.evidence, segments) for token in translation.tokens]
    return {
        "source": translation.source,
        "text": translation.text,
        "kind": translation.kind,
        "score": translation.score if translation.error is None else None,
        "complete": translation.complete,
        "tokens": [token.text for token in translation.tokens],
        **({"alternatives": alternatives} if alternatives else {}),
        **({"evidence": evidence, "segments": [asdict(each) for each in segments]} if any(evidence) else {}),
        **({"match": asdict(translation.match)} if translation.match else {}),
        **({"warnings": cautions} if cautions else {}),
        **({"coverage": _rounded(translation.coverage)} if translation.coverage else {}),
        **({"certainty": translation.certainty} if translation.certainty is not None else {}),
        **({"error": translation.error} if translation.error is not None else {}),
    }


def _rounded(coverage: Coverage) -> dict[str, float]:
    return {name: round(part, 4) for name, part in asdict(coverage).items()}


def _told(evidence: Evidence, segments: dict[SegmentPair, int]) -> dict[str, object]:
    """Evidence with as many digits as are meaningful; a neighbour's pair is its index in `segments`."""
    neighbours = [
        {
            "token": near.token,
            "distance": round(near.distance, 4),
            "weight": round(near.weight, 6),
            "segment": segments.setdefault(near.pair, len(segments)),
            "position": near.position,
            "span": near.span,
            "entry": near.entry,
        }
        for near in evidence.neighbours
    ]
    return {
        "probability": round(evidence.probability, 6),
        "model_probability": round(evidence.model_probability, 6),
        "memory_probability": round(evidence.memory_probability, 6),
        "interpolation_weight": round(evidence.interpolation_weight, 6),
        "cached": evidence.cached,
        "forced": evidence.forced,
        "neighbours": neighbours,
    }
