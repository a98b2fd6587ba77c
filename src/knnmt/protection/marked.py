"""Text with inline codes, as documents have it: words, and between them tags and placeholders of the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


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
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part:
            found.append(part)
    return tuple(found)


def read(text: Marked) -> str:
    """The text as a person reads it, with the shown form of its codes."""
    return "".join(part.shown if isinstance(part, Code) else part for part in text)
