"""How evidence is put into words, the same on a terminal and on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from knnmt.corpus.visible import visible
from knnmt.translator.explanation import END

if TYPE_CHECKING:
    from knnmt.translator.evidence import Evidence
    from knnmt.translator.explanation import Word
    from knnmt.translator.translation import Token


def piece_name(piece: str) -> str:
    """A token of the vocabulary as people call it."""
    return "end" if piece == END else visible(piece.strip("▁Ġ") or "space")


def token_name(word: Word, token: Token) -> str:
    """A token of a word as people call it: vocabularies write characters in ways of their own, as Ġ and bytes."""
    return visible(word.part(token)) or piece_name(token.text)


def percent(part: float) -> str:
    """A probability or a share for people: 62%, 3.4%, under 0.1%."""
    if 0 < part < 0.0005:
        return "under 0.1%"
    return f"{part:.1%}" if 0 < part < 0.0995 or 0.995 <= part < 0.9995 else f"{part:.0%}"


def because(evidence: Evidence) -> str:
    """Equation 3 of a token, as a sentence or two."""
    if evidence.forced:
        return "It was forced: neither the model nor the memory was asked."
    if not evidence.neighbours:
        return f"Nothing was looked up in the memory: the model alone gives it {percent(evidence.probability)}."
    cached = " The neighbours were found at an earlier step and taken over from the cache." if evidence.cached else ""
    return (
        f"The model gives it {percent(evidence.model_probability)}, the memory {percent(evidence.memory_probability)}; "
        f"with λ {evidence.interpolation_weight:.2f} that makes {percent(evidence.probability)}.{cached}"
    )
