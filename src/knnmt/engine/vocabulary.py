"""The tokens of a target vocabulary as text: their characters, and where words begin and end."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from knnmt.engine.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACES = ("▁", "Ġ", " ")  # marks before a word: in sentencepiece, in byte-level BPE, in a vocabulary of characters
_END_OF_WORD = "</w>"
CLOSING = tuple(".,;:!?…)]}")


class WrittenVocabulary:
    """The characters of every target token.

    texts: the text of each token; a word's first token begins with a space; special tokens have no text
    joins: (vocabulary,), whether a token begins with a letter or digit that continues the word before it
    spaced: (vocabulary,), whether a token begins with a space
    closing: (vocabulary,), whether a space must follow a token: it ends with a letter, a digit, or a closing mark
    blank: (vocabulary,), whether a token is nothing but a space
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        pieces = [tokenizer.piece(token) for token in range(size)]
        self.texts = [_text(piece, tokenizer, token) for token, piece in enumerate(pieces)]
        # If the vocabulary marks ends of words instead of beginnings, a token does not show whether it joins a word.
        marks_word_starts = any(piece.startswith(_SPACES) for piece in pieces)
        self.joins = np.array([marks_word_starts and text[:1].isalnum() for text in self.texts])
        self.spaced = np.array([text[:1] == " " for text in self.texts])
        self.blank = np.array([text == " " for text in self.texts])
        self.closing = np.array(
            [marks_word_starts and (text[-1:].isalnum() or text[-1:] in CLOSING) for text in self.texts]
        )

    def holding(self, characters: Collection[str]) -> npt.NDArray[np.bool_]:
        """(vocabulary,): which tokens contain one of these characters."""
        wanted = set(characters)
        return np.array([not wanted.isdisjoint(text) for text in self.texts])


def token_sequences(tokenizer: Tokenizer, text: str) -> list[tuple[int, ...]]:
    """Ways to write a text as tokens inside a sentence: as a separate word, and directly after another character.

    The list is empty if the vocabulary cannot write the text.
    """
    found: dict[tuple[int, ...], None] = {}
    encode, decode = tokenizer.encode_targets, tokenizer.decode
    for before in ("", "(", "-", '"', "x"):
        whole, alone = (ids[:-1] for ids in encode([before + text, before]))
        rest = whole[len(alone) if before else 0 :]
        if before and whole[: len(alone)] != alone:
            continue
        if rest and decode(whole).strip() == before + text and decode(rest).strip() == text:
            found[tuple(rest)] = None
    return list(found)


def _text(piece: str, tokenizer: Tokenizer, token: int) -> str:
    if byte := _BYTE.fullmatch(piece):
        code = int(byte[1], 16)
        return chr(code) if code < 128 else "ÿ"  # probably part of a letter
    if piece.strip("".join(_SPACES)) and not tokenizer.decode([token]).strip():
        return ""
    piece = piece.removesuffix(_END_OF_WORD)
    return f" {piece[1:]}" if piece.startswith(_SPACES) else piece
