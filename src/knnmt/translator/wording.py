"""The names of tokens, the same on a terminal and on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from knnmt.corpus.visible import visible
from knnmt.translator.explanation import END

if TYPE_CHECKING:
    from knnmt.translator.explanation import Word
    from knnmt.translator.translation import Token


def piece_name(piece: str) -> str:
    """A readable name of a token of the vocabulary."""
    return "end" if piece == END else visible(piece.strip("▁Ġ") or "space")


def token_name(word: Word, token: Token) -> str:
    """A readable name of a token of a word: vocabularies have their own spellings, such as Ġ and bytes."""
    return visible(word.part(token)) or piece_name(token.text)
