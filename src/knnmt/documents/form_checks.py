"""Checks of the form of a translation: capitals, final marks, white space, repeated words, brackets, accelerators.

What a language may write in another way is not reported; `protection/form.py` has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from knnmt.corpus.accelerators import accelerators_of
from knnmt.protection.content import repetition, unclosed
from knnmt.protection.form import with_capitals, with_final_mark
from knnmt.protection.placeholder_syntax import PlaceholderSyntax

_DOUBLED = re.compile(r"(?<![\w-])([^\W\d_]{2,40})[ \n]+\1(?![\w-])", re.IGNORECASE)
# Words that may come twice in a row: "die, die die Datei lesen", "that that".
_MAY_DOUBLE = frozenset(["das", "dass", "dem", "den", "denen", "der", "die", "had", "ihr", "sie", "that", "was"])
_SHOWN = 24  # characters of a text in a message


def form_findings(source: str, target: str, language: str | None, syntax: PlaceholderSyntax) -> Iterator[str]:
    """What differs between the forms of a text and its translation.

    language: of the translation, if it is known
    syntax: what counts as a placeholder
    """
    texts = source.strip(), target.strip()
    yield from _white_space(source, target)
    if texts[0] != texts[1]:
        if with_capitals(*texts, language, syntax=syntax) != texts[1]:
            yield f"begins with {texts[1][:_SHOWN]!r}, the source with {texts[0][:_SHOWN]!r}"
        if with_final_mark(*texts, language, syntax) != texts[1]:
            yield f"ends with {texts[1][-_SHOWN:]!r}, the source with {texts[0][-_SHOWN:]!r}"
    if (said_twice := repetition(target) or _doubled(target)) and not (repetition(source) or _doubled(source)):
        yield f"repeats {said_twice[:_SHOWN]!r}"
    for mark in unclosed(target):
        if mark not in unclosed(source):
            yield f"has a {mark} without its other half"
    here, there = accelerators_of(source, target)
    if here is not None and there is None:
        yield f"lacks the accelerator {here.mark} of the source"


def _white_space(source: str, target: str) -> Iterator[str]:
    for where, one, other in (
        ("begins", source[: len(source) - len(source.lstrip())], target[: len(target) - len(target.lstrip())]),
        ("ends", source[len(source.rstrip()) :], target[len(target.rstrip()) :]),
    ):
        if one != other:
            yield f"{where} with {other!r}, the source with {one!r}" if other else f"lacks {one!r} where it {where}"
    inner = source.strip(), target.strip()
    for name, mark in (("line ends", "\n"), ("tabs", "\t")):
        counts = [text.count(mark) for text in inner]
        if counts[0] != counts[1]:
            yield f"has {counts[1]} {name}, the source {counts[0]}"
    if "  " in inner[1] and "  " not in inner[0]:
        yield "has two spaces in a row"


def _doubled(text: str) -> str:
    return next((each[1] for each in _DOUBLED.finditer(text) if each[1].lower() not in _MAY_DOUBLE), "")
