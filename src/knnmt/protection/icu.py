"""ICU messages: the branches of plural and select arguments are translated one by one; everything around them stays.

{count, plural, =0 {Keine Datei} one {# Datei} other {# Dateien}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset\s*:\s*\d+\s*)?")
_KEY = re.compile(r"\s*(?:=\d+|[\w.-]+)\s*\{")
_END = re.compile(r"\s*\}")
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
        if letter == "'" and text[place + 1 : place + 2] in ("{", "}") and "'" in text[place + 2 :]:
            special = Quoted(text[place : text.index("'", place + 2) + 1])
            after = place + len(special.raw)
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
    while key := _KEY.match(text, place):
        message, place = _message(text, key.end(), plural, depth + 1)
        if text[place : place + 1] != "}":
            raise _NotAMessageError
        place += 1
        branches.append(Branch(key.group(), message, key.group().strip(" \t\n{") in ("one", "=1")))
    end = _END.match(text, place)
    if not branches or end is None:
        raise _NotAMessageError
    return Choice(head[1], head.group(), tuple(branches), end.group()), end.end()
