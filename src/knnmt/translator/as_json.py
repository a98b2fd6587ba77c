"""A translation as `knnmt translate --jsonl` and the service write it."""

from __future__ import annotations

from dataclasses import asdict

from knnmt.corpus.pairs import SegmentPair
from knnmt.errors import NoTranslationWarning
from knnmt.segments.covering import Coverage
from knnmt.translator.evidence import Evidence
from knnmt.translator.translation import Translation


def as_json(translation: Translation) -> dict[str, object]:
    """A translation as JSON, without fields that have no value."""
    alternatives = [
        {"text": each.text, "score": each.score, "tokens": [token.text for token in each.tokens]}
        for each in translation.alternatives
    ]
    told = [each for each in translation.warnings if each.kind is not NoTranslationWarning]  # which is its error
    cautions = [{"kind": each.kind.__name__, "message": each.message} for each in told]
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
