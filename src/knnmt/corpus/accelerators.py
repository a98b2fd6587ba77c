"""Accelerator marks in interface texts: the & of "&Datei", the _ of "_Datei" and the ~ of "~Datei" name a key.

They are not text, but the same characters can be text: "R&D", "max_size", "the column _id". A text alone seldom shows
which it is. Its translation shows it, or a memory that has the same text without the mark.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Accelerators = Literal["drop", "keep"]

MARKS = "&_~"
_ENTITY = re.compile(r"&#?\w+;")
_EAST_ASIAN = "\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_IN_BRACKETS = re.compile(rf"(?<=[{_EAST_ASIAN}])\s*\(([{MARKS}])[A-Z0-9]\)")
_BEFORE_WORD, _AFTER_WORD = "([\"'„“‚‘«»‹›¿¡", ")]\"'”“’‘»«›‹.,:;!?…。、"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Characters that are not part of the text: a mark, or in East Asian texts a key in brackets, as in "ファイル(&F)".

    word: the word that contains it; hyphens and slashes separate words
    sure: it can be nothing else: a label that begins with the mark and a capital, or a key in brackets
    """

    mark: str
    start: int
    end: int
    word: str
    sure: bool

    @property
    def is_capital(self) -> bool:
        """Whether it is at the beginning of a word, before a capital."""
        return self.word.startswith(self.mark) and self.word[1:2].isupper() and self.word[1:].isalpha()

    def dropped_from(self, text: str) -> str:
        """The text without the accelerator."""
        return text[: self.start] + text[self.end :]


def accelerators_in(text: str) -> Iterator[Accelerator]:
    """Possible accelerators of a text, at most one for each kind of mark."""
    for mark in MARKS:
        if found := _accelerator(text, mark):
            yield found


def accelerators_of(source: str, target: str) -> tuple[Accelerator | None, Accelerator | None]:
    """The accelerators of a text and its translation.

    Both have one of the same kind, in different words or before a capital: a word that is the same on both sides and
    looks like an identifier ("max_size", "_id", but not "_Start") has none. A label may have a sure one even if its
    translation has none.
    """
    for here in accelerators_in(source):
        there = _accelerator(target, here.mark)
        if there is None and here.sure:
            return here, None
        if there is not None and (here.word.casefold() != there.word.casefold() or here.is_capital):
            return here, there
    return None, None


def drop_accelerators(source: str, target: str) -> tuple[str, str]:
    """A text and its translation without their accelerators."""
    here, there = accelerators_of(source, target)
    return here.dropped_from(source) if here else source, there.dropped_from(target) if there else target


def with_accelerator(text: str, mark: str, key: str = "") -> str:
    """A text with the mark before a letter, unless it already has one: before `key` if a word begins with it, otherwise
    before the first letter.
    """
    if mark in text:
        return text
    letters = [place for place, letter in enumerate(text) if letter.isalpha()]
    beginnings = [place for place in letters if not text[max(place - 1, 0) : place].isalnum()]
    same = [place for place in beginnings if key and text[place].casefold() == key.casefold()]
    return next((text[:place] + mark + text[place:] for place in (*same, *letters)), text)


def _accelerator(text: str, mark: str) -> Accelerator | None:
    """The only mark of its kind, if it can be an accelerator: it is before a letter, and without it there is a word.

    Inside a word, a small letter follows ("Ö_ffnen", not "R&D"), and the text begins like a label (unlike "max_size").
    """
    if mark not in text:
        return None
    blanked = _ENTITY.sub(lambda entity: "\0" * len(entity.group()), text)
    place = blanked.find(mark)
    following = text[place + 1 : place + 2]
    if blanked.count(mark) != 1:
        return None
    bracketed = _IN_BRACKETS.search(blanked)
    if bracketed and bracketed.start() < place < bracketed.end():
        return Accelerator(mark, bracketed.start(), bracketed.end(), bracketed.group(), sure=True)
    words = _words_at(text, place)
    inside = place > 0 and text[place - 1].isalnum()
    if not following.isalpha() or not _is_text(words.replace(mark, "", 1), "_-'’" if inside else "_-'’/"):
        return None
    if inside and (following.isupper() or _first_letter(text).islower()):
        return None
    sentence = text.endswith(".") and not text.endswith("..")
    sure = not text[:place].strip() and not following.islower() and not sentence
    word = next(word for word in re.split("[-/]", words) if mark in word)
    return Accelerator(mark, place, place + 1, word, sure)


def _words_at(text: str, place: int) -> str:
    """The text around a place up to white space, without surrounding punctuation."""
    before, after = text[:place].split(), text[place:].split()
    start = before[-1] if before and not text[place - 1].isspace() else ""
    return (start + after[0]).lstrip(_BEFORE_WORD).rstrip(_AFTER_WORD)


def _is_text(words: str, besides: str) -> bool:
    return all(each.isalnum() or each in besides or unicodedata.category(each)[0] == "M" for each in words)


def _first_letter(text: str) -> str:
    return next((letter for letter in text if letter.isalpha()), "")
