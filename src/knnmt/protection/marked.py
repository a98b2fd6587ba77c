"""Text with inline codes, as documents have it: words, and between them tags and placeholders of the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby


class Role(Enum):
    """The relation of a code to the text around it."""

    OPENING = "opening"
    CLOSING = "closing"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Code:
    """An inline code.

    raw: the code exactly as in the document
    shown: the text that a code stands for, such as "%s" or "{0}"; empty if unknown
    pair: a number that an opening code shares with its closing one; None for a single code
    """

    raw: str
    role: Role = Role.ALONE
    pair: int | None = None
    shown: str = ""


Marked = tuple[str | Code, ...]
"""The parts of a text in order. Characters in its strings are not escaped: they are what a person reads."""


def written(text: Marked) -> str:
    """The text with its codes as they are in the document."""
    return "".join(part.raw if isinstance(part, Code) else part for part in text)


def joined_strings(parts: Sequence[str | Code]) -> Marked:
    """The parts without empty strings; consecutive strings are joined."""
    found: list[str | Code] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, str)):
        if not is_text:
            found += group
        elif text := "".join(map(str, group)):
            found.append(text)
    return tuple(found)


def read(text: Marked) -> str:
    """The text as a person reads it, with the shown form of its codes."""
    return "".join(part.shown if isinstance(part, Code) else part for part in text)
