"""Accelerator marks in interface texts: the & of "&Datei" and the _ of "_Datei" name a key, they are no text."""

from __future__ import annotations

import re

_ENTITY = re.compile(r"&#?\w+;")
_WORD = re.compile(r"[\w&]+")


def drop_accelerators(source: str, target: str) -> tuple[str, str]:
    """Both sides without their mark, where each side has exactly one of the same kind in front of a letter.

    An & that begins an entity or stands between two capitals ("R&D"), and a word that is the same on both sides and
    looks like an identifier ("max_size", "_id", but not "_Start"), are no accelerators.
    """
    for mark in "&_":
        places = [_accelerator(side, mark) for side in (source, target)]
        if places[0] is None or places[1] is None:
            continue
        words = [
            _word_at(side, place) for side, place in zip((source, target), places, strict=True) if place is not None
        ]
        if words[0] == words[1] and not (words[0].startswith(mark) and words[0][1:2].isupper()):
            continue
        source = source[: places[0]] + source[places[0] + 1 :]
        target = target[: places[1]] + target[places[1] + 1 :]
    return source, target


def _accelerator(text: str, mark: str) -> int | None:
    """Where the only mark stands, if it is the only one and can be an accelerator."""
    blanked = _ENTITY.sub(lambda entity: "\0" * len(entity.group()), text)
    place = blanked.find(mark)
    if blanked.count(mark) != 1 or not text[place + 1 : place + 2].isalpha():
        return None
    if mark == "&" and place > 0 and text[place - 1].isupper() and text[place + 1].isupper():
        return None
    return place


def _word_at(text: str, place: int) -> str:
    return next(word.group() for word in _WORD.finditer(text) if word.start() <= place < word.end())
