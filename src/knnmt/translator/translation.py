"""What a translator returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """A target token: its id and the piece of text that the vocabulary has for it."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated segment.

    score: sum of log-probabilities over length ** length_penalty; over several parts, the mean by tokens
    complete: False where the longest allowed translation was reached, so that its end may be missing
    alternatives: the next best translations, best first, where more than one was asked for; of several sentences, the
        second best of each, the third best of each, and so on
    """

    source: str
    text: str
    tokens: tuple[Token, ...]
    score: float
    complete: bool = True
    alternatives: tuple[Translation, ...] = ()
