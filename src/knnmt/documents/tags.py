"""Tags of HTML in a text, as inline codes; and what of a text can be left out on both sides of it."""

from __future__ import annotations

import re
from html import unescape

from knnmt.documents.elements import joined
from knnmt.protection.marked import Code, Marked, Role

_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:[^<>\"']|\"[^\"]*\"|'[^']*')*+(/?)>|<!--.*?-->", re.DOTALL)
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905


def with_tags(text: str, references: bool = False) -> Marked:
    """A text with its tags as codes, in pairs where they are nested.

    references: character references such as &amp; stand for what they mean
    """
    parts: list[str | Code] = []
    open_tags: list[tuple[str, int]] = []
    place = pairs = 0
    for tag in _TAG.finditer(text):
        parts.append(text[place : tag.start()])
        place = tag.end()
        name = (tag[2] or "").lower()
        if not name or tag[3] or name in _VOID:
            parts.append(Code(tag[0]))
        elif not tag[1]:
            pairs += 1
            open_tags.append((name, pairs))
            parts.append(Code(tag[0], Role.OPENING, pairs))
        elif open_tags and open_tags[-1][0] == name:
            parts.append(Code(tag[0], Role.CLOSING, open_tags.pop()[1]))
        else:
            parts.append(Code(tag[0], Role.CLOSING))
    parts.append(text[place:])
    return joined([unescape(part) if references and isinstance(part, str) else part for part in parts])


def core(text: Marked) -> tuple[int, int]:
    """From which part to which a text holds words: outside are white space, codes alone, and pairs around all of it."""
    first, last = 0, len(text)

    def is_outside(part: str | Code) -> bool:
        return not part.strip() if isinstance(part, str) else part.role is Role.ALONE and not part.shown

    while first < last:
        if is_outside(text[first]):
            first += 1
        elif is_outside(text[last - 1]):
            last -= 1
        elif _are_a_pair(text[first], text[last - 1]):
            first, last = first + 1, last - 1
        else:
            break
    return first, last


def _are_a_pair(one: str | Code, other: str | Code) -> bool:
    return (
        isinstance(one, Code)
        and isinstance(other, Code)
        and (one.role, other.role) == (Role.OPENING, Role.CLOSING)
        and one.pair is not None
        and one.pair == other.pair
    )
