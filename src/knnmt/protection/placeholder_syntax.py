"""What counts as a placeholder in a text: the kinds of its format, and patterns of one's own."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from knnmt.errors import SettingError
from knnmt.protection.placeholder_kinds import ANYWHERE, KINDS, PlaceholderKind

MAX_PATTERNS = 20
MAX_PATTERN_LENGTH = 100  # characters
_MAX_RUN = 100  # characters that one * of a pattern stands for


@dataclass(frozen=True, slots=True)
class PlaceholderSyntax:
    """What counts as a placeholder in a text.

    text_kinds: the document format that the text comes from, or its flags in a PO catalog
    patterns: placeholders of one's own: literal text in which * stands for 1 to 100 characters other than white space,
        up to what follows it in the pattern; at the end of a pattern, for letters, digits and underscores
    """

    text_kinds: tuple[str, ...] = ("text",)
    patterns: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[PlaceholderKind, ...]:
        """The kinds that count."""
        asked = {ANYWHERE, *self.text_kinds}
        without = {each.removeprefix("no-") for each in self.text_kinds if each.startswith("no-")}
        return tuple(
            each for each in KINDS if not asked.isdisjoint(where := each.where.split()) and without.isdisjoint(where)
        )


PLAIN = PlaceholderSyntax()


def checked_patterns(patterns: Collection[str]) -> tuple[str, ...]:
    """Patterns of placeholders of one's own; `SettingError` if one of them cannot work."""
    if isinstance(patterns, str):
        raise SettingError(f"expected a list of patterns of placeholders, got one text: [{patterns!r}]")
    if len(patterns) > MAX_PATTERNS:
        raise SettingError(f"expected at most {MAX_PATTERNS} patterns of placeholders, got {len(patterns)}")
    for each in patterns:
        if not isinstance(each, str) or not 1 <= len(each) <= MAX_PATTERN_LENGTH:
            raise SettingError(
                f"expected a pattern of a placeholder with 1 to {MAX_PATTERN_LENGTH} characters, got {each!r}"
            )
        if each.startswith("*") or "**" in each or any(map(str.isspace, each)):
            raise SettingError(
                "expected a pattern of a placeholder without white space that begins with a character of its own, "
                f"such as ~~*~~, got {each!r}"
            )
    return tuple(dict.fromkeys(patterns))


def expressions(syntax: PlaceholderSyntax) -> tuple[str, list[str]]:
    """An expression for all placeholders of a syntax, and some of which one matches in every text that has any."""
    kinds = syntax.kinds
    patterns = [*map(_literal, syntax.patterns), *(each.pattern for each in kinds)]
    triggers = [
        *(re.escape(each[0]) for each in syntax.patterns),
        *(part for each in kinds for part in each.triggers.split()),
    ]
    # Alternatives that all begin with a character of their own are looked for four times as fast as others.
    literal = [each for each in triggers if not each.startswith("[")]
    others = [each for each in triggers if each.startswith("[")]
    return "|".join(patterns), ["|".join(dict.fromkeys(literal)), *dict.fromkeys(others)]


def _literal(pattern: str) -> str:
    """The regular expression of a pattern of one's own. A run is bounded, so that no text takes long."""
    first, *others = pattern.split("*")
    parts = [re.escape(first)]
    for other in others:
        run = rf"(?:(?!{re.escape(other)})\S){{1,{_MAX_RUN}}}+" if other else rf"\w{{1,{_MAX_RUN}}}+"
        parts += [run, re.escape(other)]
    return "".join(parts)
