"""Fuzzy matches that differ from a text only in numbers and placeholders: the target with those of the text inserted.

This is done only if there is no doubt. The sources must be the same except for numbers, their signs, and placeholders.
Each that differs must be in the target as often as in its source, in the same surroundings. No number may change so
that the words around it would have to change: "1 character" does not become "2 character".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence

from knnmt.corpus.sameness import plain
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import Kind, Needs, Placeholder, find

# Languages with more plural forms than one for 1 and one for the rest
_SEVERAL_PLURALS = frozenset(
    [
        "ar",
        "be",
        "br",
        "bs",
        "cs",
        "cy",
        "ga",
        "gd",
        "he",
        "hr",
        "lt",
        "lv",
        "mt",
        "pl",
        "ro",
        "ru",
        "sk",
        "sl",
        "sr",
        "uk",
    ]
)
_STAND_INS = {Kind.EXACT: "\ue000", Kind.NUMBER: "\ue001", Kind.SIGN: "\ue002"}
_DIGITS = re.compile(r"\d+")
_COUNTED = 9  # digits of a number that decide its plural


def repaired(text: str, source: str, target: str, language: str, syntax: PlaceholderSyntax = PLAIN) -> str | None:
    """The target of a source, changed to fit the text; None in case of doubt.

    language: of the target
    syntax: what counts as a placeholder
    """
    new, old, there = (find(each, syntax=syntax) for each in (text, source, target))
    if _skeleton(text, new) != _skeleton(source, old):
        return None
    changes: dict[Hashable, tuple[str, str]] = {}
    for one, other in zip(old, new, strict=True):
        if changes.setdefault(_key(one), (one.text, other.text)) != (one.text, other.text):
            return None  # two equal ones, or two that look the same, become different
    if Counter(map(_key, old)) != Counter(map(_key, there)):
        return None
    surroundings = {(_key(each), _letters_beside(each, source)) for each in old}
    parts, end = [], 0
    for place in there:
        before, after = changes[_key(place)]
        if before == after:
            continue
        if (_key(place), _letters_beside(place, target)) not in surroundings:
            return None  # "3" became "3rd"
        put = after
        if place.kind is Kind.NUMBER:
            if _plural(before, language) != _plural(after, language):
                return None
            written = _as_written(place.text, before, after)
            if written is None:
                return None
            put = written
        parts += [target[end : place.start], put]
        end = place.end
    made = "".join([*parts, target[end:]])
    return None if Needs.of(new).unmet_in(made, syntax=syntax) else made


def _skeleton(text: str, found: Sequence[Placeholder]) -> str:
    """A text in which everything found is replaced by the same sign."""
    parts, end = [], 0
    for each in found:
        parts += [text[end : each.start], _STAND_INS[each.kind]]
        end = each.end
    return plain("".join([*parts, text[end:]]))


def _key(found: Placeholder) -> Hashable:
    """What distinguishes one from others, whatever the number format of the language."""
    return found.kind, tuple(_DIGITS.findall(found.text)) if found.kind is Kind.NUMBER else found.text


def _letters_beside(found: Placeholder, text: str) -> tuple[str, str]:
    before, after = text[max(found.start - 1, 0) : found.start], text[found.end : found.end + 1]
    return before if before.isalpha() else "", after if after.isalpha() else ""


def _as_written(there: str, before: str, after: str) -> str | None:
    """A number in place of another, grouped as that one is in the target; None unless both are grouped alike."""
    if there == before:
        return after
    if _DIGITS.split(before) != _DIGITS.split(after):
        return None
    runs = iter(_DIGITS.findall(after))
    return _DIGITS.sub(lambda _: next(runs), there)


def _plural(number: str, language: str) -> Hashable:
    """A key that is equal for numbers with the same plural form.

    For languages with more forms, it may distinguish too many.
    """
    if not number.isdecimal():
        return "parts"
    value = int(number[-_COUNTED:]) + (1_000_000_000 if len(number) > _COUNTED else 0)
    if language.partition("-")[0].lower() not in _SEVERAL_PLURALS:
        return value if value < 2 else "many"
    return value if value < 11 else value % 100
