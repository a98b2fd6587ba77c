"""Parts of a text that are not language: placeholders of the kinds that count in it (`placeholder_kinds`); and numbers.

A placeholder must come out unchanged. A number must keep its digits and the € or % beside it; the grouping of digits
and the position of the sign depend on the language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax, expressions


class Kind(Enum):
    """What must be kept of a part of a text."""

    EXACT = "comes out as it is"
    NUMBER = "comes out with its digits"
    SIGN = "comes out beside a number"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A part of a text that is no language: a placeholder, a number, or a sign beside a number."""

    start: int
    end: int
    text: str
    kind: Kind


_NUMBER = r"\d+(?:[.,'’:/\u00a0\u202f]\d+)*"
_SIGNS = "%‰€$£¥₹₽₩¢"
_AFTER = rf"[{_SIGNS}](?![%({{])|\s[{_SIGNS}](?![%$\w({{])"  # "5 €" and "50%ige", not "5 %s"
_COMPILED = 256  # syntaxes whose expressions are remembered
_TRAILING = ".,;:!?…"
_THOUSANDS = frozenset(".,'’\u00a0\u202f")
_BETWEEN_DIGITS = re.compile(r"(\D+)")


def find(text: str, also: Collection[str] = (), syntax: PlaceholderSyntax = PLAIN) -> list[Placeholder]:
    """All such parts of a text, in order, without overlaps.

    also: other texts that must stay unchanged
    syntax: what counts as a placeholder
    """
    pattern, *triggers = _expression(syntax)
    if not also:
        return list(_found(pattern, text, 0, len(text))) if any(each.search(text) for each in triggers) else []
    literal = re.compile("|".join(re.escape(each) for each in sorted(also, key=len, reverse=True)))
    found: list[Placeholder] = []
    start = 0
    for match in literal.finditer(text):
        found.extend(_found(pattern, text, start, match.start()))
        found.append(Placeholder(match.start(), match.end(), match.group(), Kind.EXACT))
        start = match.end()
    return [*found, *_found(pattern, text, start, len(text))]


def joined_exact(found: Iterable[Placeholder]) -> list[Placeholder]:
    """Placeholders, joined if they touch each other, and numbers; signs may move."""
    groups: list[list[Placeholder]] = []
    last: Placeholder | None = None
    for each in found:
        if last is not None and each.kind is last.kind is Kind.EXACT and last.end == each.start:
            groups[-1].append(each)
        elif each.kind is not Kind.SIGN:
            groups.append([each])
        else:
            continue
        last = each
    return [
        Placeholder(group[0].start, group[-1].end, "".join(each.text for each in group), group[0].kind)
        for group in groups
    ]


@lru_cache(_COMPILED)
def _expression(syntax: PlaceholderSyntax) -> tuple[re.Pattern[str], ...]:
    """An expression for placeholders, numbers and signs, and some of which one matches in every text that has any."""
    exact, triggers = expressions(syntax)
    number = rf"(?P<number>(?P<before>[{_SIGNS}]\s?)?{_NUMBER}(?P<after>{_AFTER})?)"
    return re.compile(f"(?P<exact>{exact})|{number}"), *(re.compile(each) for each in [r"\d", *triggers])


def _found(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[Placeholder]:
    for match in pattern.finditer(text, start, end):
        if match["exact"]:
            exact = _without_punctuation(match["exact"])
            if exact:
                yield Placeholder(match.start(), match.start() + len(exact), exact, Kind.EXACT)
            continue
        first, last = match.span("number")
        before, after = match["before"], match["after"]
        if before:
            yield Placeholder(first, first + 1, before[0], Kind.SIGN)
        inner = first + len(before or ""), last - len(after or "")
        yield Placeholder(*inner, text[slice(*inner)], Kind.NUMBER)
        if after:
            yield Placeholder(last - 1, last, after[-1], Kind.SIGN)


def _without_punctuation(found: str) -> str:
    """An address without the marks and brackets that close the sentence around it."""
    address = "://" in found[:8] or "@" in found or found.startswith(("www.", "mailto:", "/", "~", ".", "\\"))
    if not address and found[1:3] != ":\\":
        return found
    end = len(found)
    unopened = found.count(")") - found.count("(")
    while end and (found[end - 1] in _TRAILING or (found[end - 1] == ")" and unopened > 0)):
        end -= 1
        unopened -= found[end] == ")"
    return found[:end]


def runs(number: str) -> list[str]:
    """The runs of digits of a number, whatever separates its thousands."""
    first, *others = _BETWEEN_DIGITS.split(number)
    found, separator = [[first]], ""
    for mark, digits in zip(others[::2], others[1::2], strict=True):
        begins = len(found[-1]) == 1 and 0 < len(found[-1][0]) <= 3 and mark in _THOUSANDS
        if len(digits) == 3 and (begins or (len(found[-1]) > 1 and mark == separator)):
            found[-1].append(digits)
            separator = mark
        else:
            found.append([digits])
    return list(filter(None, map("".join, found)))


def writings(number: str) -> list[str]:
    """The ways to write a number that a translation may choose from: as it is, and with point and comma exchanged."""
    exchanged = number.translate({ord("."): ",", ord(","): "."})
    if exchanged == number or (number.count(".") > 1 and len(set(map(len, number.split(".")[1:]))) > 1):
        return [number]  # such as 31.12.2024
    return [number, exchanged]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a translation must have: placeholders, runs of digits, and signs, with the count of each.

    together: placeholders that touch each other, such as %d%%, which stay together
    """

    exact: Counter[str]
    digits: Counter[str]
    signs: Counter[str]
    together: Counter[str]

    @classmethod
    def of(cls, found: Collection[Placeholder]) -> Needs:
        """The needs of these parts."""
        single = set(found)
        return cls(
            Counter(each.text for each in found if each.kind is Kind.EXACT),
            Counter(run for each in found if each.kind is Kind.NUMBER for run in runs(each.text)),
            Counter(each.text for each in found if each.kind is Kind.SIGN),
            Counter(each.text for each in joined_exact(found) if each not in single),
        )

    def __bool__(self) -> bool:
        return bool(self.exact or self.digits or self.signs)

    def unmet_in(self, text: str, also: Collection[str] = (), syntax: PlaceholderSyntax = PLAIN) -> list[str]:
        """What a text has too seldom or too often, including foreign placeholders; empty if nothing is wrong.

        also, syntax: as for `find`. A number whose digits are not in the source is allowed: "two" may have become 2.
        """
        has = Needs.of(find(text, also, syntax))
        wrong = [each for each in self.exact | has.exact if self.exact[each] != has.exact[each]]
        wrong += [each for each, times in self.together.items() if text.count(each) < times]
        wrong += [run for run in self.digits if self.digits[run] != has.digits[run]]
        return wrong + [sign for sign in self.signs if self.signs[sign] != has.signs[sign]]
