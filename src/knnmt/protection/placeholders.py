r"""Parts of a text that are not language: placeholders, entities, escapes, addresses and paths; and numbers.

    printf, Python      %s %-5d %1$s %(name)s %%           Qt             %1 %L1 %n
    Python, Java, .NET  {0} {name} {0,number} {0:N2} {}    templates      {{x}} {% x %} ${x} #{x} %{x} $(x)
    shells              $HOME %PATH%                       stand-ins      [X3X]
    quoted braces       '{' '}' ''{0}''
    entities, escapes   &amp; &#160; \n \t \u00a0 \"       addresses      https://… www.… name@example.org
    paths               /usr/lib ~/x ./x C:\x \\host\x

A placeholder must come out unchanged. A number must keep its digits and the € or % beside it; the grouping of digits
and the position of the sign depend on the language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What must be kept of a part of a text."""

    EXACT = "comes out as it is"
    NUMBER = "comes out with its digits"
    SIGN = "comes out beside a number"


@dataclass(frozen=True, slots=True)
class Found:
    """A part of a text."""

    start: int
    end: int
    text: str
    kind: Kind


_ARGUMENT = r"[\w.\[\]$@-]*(?:![rsa])?(?:[:,][^{}\n]*)?"
_EXACT = "|".join(
    [
        r"(?:(?i:https?|ftps?|file|ssh|git|wss?))://[^\s<>\"'»“”]+|(?:www\.|mailto:)[^\s<>\"'»“”]+",
        r"[\w.+-]{1,64}@[\w-]++(?:\.[\w-]++)+",  # an address has no more before @ (RFC 5321)
        r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}|[$#%]\{[^{}\n]*\}|\$\([\w.]+\)",
        r"'[{}]+'|''(?=\{)|(?<=\})''",
        rf"\{{{_ARGUMENT}\}}",
        r"%\([^()\s]+\)[#0+ -]*+\d*+(?:\.\d++)?[diouxXeEfFgGcrsa]",
        r"%%",
        r"%[A-Z_][A-Z0-9_]+%",
        r"%(?:\d++\$)?[#0+',-]*+(?:\d++|\*)?(?:\.(?:\d++|\*))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcspn@]",
        r"%L?\d{1,2}",
        r"\$[A-Za-z_]\w*",
        r"\[X\d+X\]",
        r"&(?:[A-Za-z]\w*|\#\d+|\#[xX][0-9a-fA-F]+);",
        r"(?<![\w\\])(?:[A-Za-z]:\\|\\\\\w)[^\s\"'<>|*?»“”]*",
        r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[nrtabfv0\\\"'])",
        r"(?<![\w/.<~])(?:~|\.{1,2})?(?:/[\w.+@-]+){2,}/?|(?<![\w/.<])(?:~|\.{1,2})/[\w.+@-]+/?",
        r"(?:(?<=\s)|(?<=[\"'(„“‚‘])|(?<![\s\S]))/[A-Za-z][\w.+@-]*",
    ]
)
_NUMBER = r"\d+(?:[.,'’:/\u00a0\u202f]\d+)*"
_SIGNS = "%‰€$£¥₹₽₩¢"
_AFTER = rf"[{_SIGNS}](?![%({{])|\s[{_SIGNS}](?![%$\w({{])"  # "5 €" and "50%ige", not "5 %s"
_PATTERN = re.compile(rf"(?P<exact>{_EXACT})|(?P<number>(?P<before>[{_SIGNS}]\s?)?{_NUMBER}(?P<after>{_AFTER})?)")
_ANY = re.compile(r"[\d{}%$&\\/@\[]|www\.|mailto:")  # every find has one of these; most texts have none
_TRAILING = ".,;:!?…"
_GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:([.,'’\u00a0\u202f])\d{3})(?:\1\d{3})*(?!\d)")
_RUN = re.compile(r"\d+")


def find(text: str, also: Collection[str] = ()) -> list[Found]:
    """All such parts of a text, in order, without overlaps. also: other texts that must stay unchanged"""
    if not also:
        return list(_found(text, 0, len(text))) if _ANY.search(text) else []
    literal = re.compile("|".join(re.escape(each) for each in sorted(also, key=len, reverse=True)))
    found: list[Found] = []
    start = 0
    for match in literal.finditer(text):
        found.extend(_found(text, start, match.start()))
        found.append(Found(match.start(), match.end(), match.group(), Kind.EXACT))
        start = match.end()
    return [*found, *_found(text, start, len(text))]


def joined_exact(found: Iterable[Found]) -> list[Found]:
    """Placeholders, joined if they touch each other, and numbers; signs may move."""
    groups: list[list[Found]] = []
    last: Found | None = None
    for each in found:
        if last is not None and each.kind is last.kind is Kind.EXACT and last.end == each.start:
            groups[-1].append(each)
        elif each.kind is not Kind.SIGN:
            groups.append([each])
        else:
            continue
        last = each
    return [
        Found(group[0].start, group[-1].end, "".join(each.text for each in group), group[0].kind) for group in groups
    ]


def _found(text: str, start: int, end: int) -> Iterator[Found]:
    for match in _PATTERN.finditer(text, start, end):
        if match["exact"]:
            exact = _without_punctuation(match["exact"])
            if exact:
                yield Found(match.start(), match.start() + len(exact), exact, Kind.EXACT)
            continue
        first, last = match.span("number")
        before, after = match["before"], match["after"]
        if before:
            yield Found(first, first + 1, before[0], Kind.SIGN)
        inner = first + len(before or ""), last - len(after or "")
        yield Found(*inner, text[slice(*inner)], Kind.NUMBER)
        if after:
            yield Found(last - 1, last, after[-1], Kind.SIGN)


def _without_punctuation(found: str) -> str:
    """An address without the marks and brackets that close the sentence around it."""
    address = "://" in found[:8] or "@" in found or found.startswith(("www.", "mailto:", "/", "~", ".", "\\\\"))
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
    return _RUN.findall(_GROUPED.sub(lambda grouped: re.sub(r"\D", "", grouped.group()), number))


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
    def of(cls, found: Collection[Found]) -> Needs:
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

    def unmet_in(self, text: str, also: Collection[str] = ()) -> list[str]:
        """What a text has too seldom or too often, including foreign placeholders; empty if nothing is wrong.

        A number whose digits are not in the source is allowed: "two" may have become 2.
        """
        has = Needs.of(find(text, also))
        wrong = [each for each in self.exact | has.exact if self.exact[each] != has.exact[each]]
        wrong += [each for each, times in self.together.items() if text.count(each) < times]
        wrong += [run for run in self.digits if self.digits[run] != has.digits[run]]
        return wrong + [sign for sign in self.signs if self.signs[sign] != has.signs[sign]]
