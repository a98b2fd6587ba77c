"""The text of an element as words and inline codes, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from itertools import groupby

from knnmt.corpus.inline import visible_text
from knnmt.documents.content import Content
from knnmt.documents.markup import Element, escaped, pieces
from knnmt.protection.marked import Code, Marked, Role


class Kind(Enum):
    """The kind of an element in a text: tags around words, or a single code."""

    AROUND = "around"
    OPENING = "opening"
    CLOSING = "closing"
    ALONE = "alone"


Rule = Callable[[Element], tuple[Kind, str | None]]
"""For an inline element: its kind, and the key that its opening and closing codes share."""


def marked_text(content: Content, element: Element, rule: Rule) -> Marked:
    """The content of an element."""
    parts: list[str | Code] = []
    pairs: dict[str, int] = {}

    def add(element: Element) -> None:
        place = element.inside
        for child in element.children:
            add_pieces(content.text[place : child.start])
            add_child(child)
            place = child.end
        add_pieces(content.text[place : element.inside_end])

    def add_pieces(raw: str) -> None:
        parts.extend(Code(piece.raw) if piece.kind == "other" else piece.text for piece in pieces(raw))

    def add_child(child: Element) -> None:
        kind, shared = rule(child)
        if kind is Kind.AROUND and not child.is_one_tag:
            number = pairs.setdefault(f"around {child.start}", len(pairs) + 1)
            parts.append(Code(content.text[child.start : child.inside], Role.OPENING, number))
            add(child)
            parts.append(Code(content.text[child.inside_end : child.end], Role.CLOSING, number))
            return
        role = {Kind.OPENING: Role.OPENING, Kind.CLOSING: Role.CLOSING}.get(kind, Role.ALONE)
        pair = None if role is Role.ALONE or shared is None else pairs.setdefault(shared, len(pairs) + 1)
        shown = _shown(content, child) if role is Role.ALONE else ""
        parts.append(Code(content.text[child.start : child.end], role, pair, shown))

    add(element)
    return joined(parts)


def _shown(content: Content, code: Element) -> str:
    """The readable text of a code: its own text, or that of its attributes, without mark-up."""
    own = (
        "".join(piece.text for piece in pieces(content.text[code.inside : code.inside_end]))
        if not code.children
        else ""
    )
    told = (code.attributes.get(name, "") for name in ("equiv-text", "disp", "equiv"))
    return next((text for each in (own, *told) if (text := visible_text(each).strip())), "")


def joined(parts: Iterable[str | Code]) -> Marked:
    """The same parts with adjacent strings joined, without empty ones and without empty pairs."""
    merged: list[str | Code] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, str)):
        if not is_text:
            merged += group
        elif text := "".join(part for part in group if isinstance(part, str)):
            merged.append(text)
    roles: dict[int, set[Role]] = {}
    for part in merged:
        if isinstance(part, Code) and part.pair is not None:
            roles.setdefault(part.pair, set()).add(part.role)
    alone = {pair for pair, found in roles.items() if len(found) < 2}
    return tuple(replace(part, pair=None) if isinstance(part, Code) and part.pair in alone else part for part in merged)


def as_markup(target: Marked, content: Content) -> str:
    """A target as it is written in an element."""
    return "".join(
        part.raw if isinstance(part, Code) else escaped(part).replace("\n", content.line_end) for part in target
    )


def plain(text: Marked | None) -> str:
    """The words of a text without its codes."""
    return "".join(part for part in text or () if isinstance(part, str))


def core(text: Marked) -> tuple[int, int]:
    """The range of parts with words: white space, single codes and pairs around everything are outside."""
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
