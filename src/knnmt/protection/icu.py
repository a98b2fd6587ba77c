"""ICU messages: the branches of plural and select arguments are translated one by one; everything around them stays.

{count, plural, =0 {Keine Datei} one {# Datei} other {# Dateien}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset\s*:\s*\d+\s*)?")
_SPACE = re.compile(r"\s*+")
_KEY = re.compile(r"(=\d++|(?<![\w.-])[\w.-]++)\s*+\{")
_MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Quoted:
    """Text between apostrophes, whose braces are no syntax; or # in a plural, which the number replaces."""

    raw: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """before: its key with the brace; singular: its number is 1"""

    before: str
    message: Message
    singular: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """An argument with branches. head and tail: the text around them"""

    name: str
    head: str
    branches: tuple[Branch, ...]
    tail: str


Message = tuple[str | Quoted | Choice, ...]


class _NotAMessageError(Exception):
    """The text looks like a message and is none."""


def parsed(text: str) -> Message | None:
    """A text as a message with branches; None if it has no branches, or is not valid ICU syntax."""
    if not _HEAD.search(text):
        return None
    try:
        message, end = _message(text, 0, plural=False, depth=0)
    except _NotAMessageError:
        return None
    return message if end == len(text) and any(isinstance(part, Choice) for part in message) else None


def written_message(message: Message) -> str:
    """The text of a message; for a parsed message, the original text."""
    return "".join(_written(message))


def _written(message: Message) -> Iterator[str]:
    for part in message:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Quoted):
            yield part.raw
        else:
            yield part.head
            for branch in part.branches:
                yield branch.before
                yield from _written(branch.message)
                yield "}"
            yield part.tail


def _message(text: str, place: int, plural: bool, depth: int) -> tuple[Message, int]:
    """The message that begins at a place, and its end: a closing brace without an opening one."""
    if depth > _MAX_DEPTH:
        raise _NotAMessageError
    parts: list[str | Quoted | Choice] = []
    start = place
    simple = 0  # open braces of arguments without branches
    while place < len(text):
        letter = text[place]
        special: Quoted | Choice | None = None
        if letter == "'" and text[place + 1 : place + 2] in ("{", "}") and (end := text.find("'", place + 2)) > 0:
            special, after = Quoted(text[place : end + 1]), end + 1
        elif letter == "#" and plural and not simple:
            special, after = Quoted("#", number=True), place + 1
        elif letter == "{" and (head := _HEAD.match(text, place)):
            special, after = _choice(text, head, depth)
        if special is not None:
            parts += [text[start:place], special]
            start = place = after
            continue
        simple += (letter == "{") - (letter == "}")
        if simple < 0:
            break
        place += 1
    if simple > 0:
        raise _NotAMessageError
    return tuple(part for part in (*parts, text[start:place]) if part), place


def _choice(text: str, head: re.Match[str], depth: int) -> tuple[Choice, int]:
    branches: list[Branch] = []
    place = head.end()
    plural = head[2] != "select"
    start = _after_space(text, place)
    while key := _KEY.match(text, start):
        before = text[place : key.end()]
        message, end = _message(text, key.end(), plural, depth + 1)
        if text[end : end + 1] != "}":
            raise _NotAMessageError
        branches.append(Branch(before, message, key[1] in ("one", "=1")))
        place = end + 1
        start = _after_space(text, place)
    if not branches or text[start : start + 1] != "}":
        raise _NotAMessageError
    return Choice(head[1], head.group(), tuple(branches), text[place : start + 1]), start + 1


def _after_space(text: str, place: int) -> int:
    """The next place that has no white space."""
    found = _SPACE.match(text, place)
    return place if found is None else found.end()
