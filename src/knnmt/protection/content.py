"""Whether a translation has the content of its source: what it invents, and signs that something is missing.

Nothing here knows a language. A placeholder, tag, address or number that the source lacks can be seen; a clause that
vanished shows itself by the length, a missing end, or a repetition in its place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from knnmt.protection.form import ABBREVIATIONS
from knnmt.protection.marked import Code
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import Needs, Placeholder, find
from knnmt.protection.tags import with_tags

MAX_SPELLED_OUT = 12  # the largest number that a translation may have in digits because the source has it in words
SHORTEST = 0.35  # of the length of a source, if nothing is known of the memory
MIN_BYTES = 30  # of a source whose translation has a usual length
_DENSE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")  # Chinese, Japanese, Korean
_LETTERS_OF_DENSE = 3  # that say as much as one such character
_WORD = re.compile(r"\w+")
_STUTTER = re.compile(r"([^\W\d_]{2,20}?)\1{3}")  # a part of a word four times in a row
_MAX_REPEATED = 20  # words of a phrase that is looked for
# A full stop after a word, and a word in small letters: what constrained search adds after the end looks so.
_GOES_ON = re.compile(r"(?<![^\W\d_])([^\W\d_]{4,40}+)[.!?] ([^\W\d_]{2,40}+)")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_SIGNS = frozenset("{}[]|\\^_<>@`")  # which no language needs in the place of a word
# Signs that translators keep, whatever they stand for: in 21,118 messages that people translated, 5 had lost one.
_KEPT_SIGNS = frozenset("{}[]|\\^<>@$=")
_ROW_SIGNS = frozenset("{}[]|\\^<>@$=#~+*_:")  # of which translators keep several in a row; 2 had lost some
_IN_A_ROW = re.compile("|".join(f"{re.escape(sign)}{{2,}}+" for sign in sorted(_ROW_SIGNS)))
_TO_KEEP = re.compile(f"{_IN_A_ROW.pattern}|[{re.escape(''.join(sorted(_KEPT_SIGNS)))}]")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with the content of a translation.

    number: the number that the source lacks; empty for other faults
    """

    message: str
    number: str = ""


def content_faults(
    source: str,
    target: str,
    also: Collection[str] = (),
    syntax: PlaceholderSyntax = PLAIN,
    shortest: float | None = None,
) -> list[Fault]:
    """What is wrong with the content of a translation, as far as it can be seen.

    also, syntax: as for `find`
    shortest: the fewest bytes that a translation usually has for each byte of its source, in UTF-8; None if unknown
    """
    if any(map(str.isalpha, source)) and not any(map(str.isalnum, target)):
        return [Fault("is empty")]
    has = find(target, also, syntax)
    faults: list[Fault] = []
    if has or not _SIGNS.isdisjoint(target):
        faults = invented(source, target, has, find(source, also, syntax))
    halves = [mark for mark in unclosed(target) if mark not in unclosed(source)]
    faults += [Fault(f"lacks {sign} of the source") for sign in lost_signs(source, target) if sign not in halves]
    if shortest is None:
        sizes, shortest = (text_length(source), text_length(target)), SHORTEST
    else:
        sizes = len(source.encode()), len(target.encode())
    if sizes[0] >= MIN_BYTES and sizes[1] < sizes[0] * shortest:
        faults.append(Fault(f"is very short: {len(target)} characters for {len(source)}"))
    if (words := repetition(target)) and not repetition(source):
        faults.append(Fault(f"repeats {words[:40]!r}"))
    if (word := after_end(target)) and not after_end(source):
        faults.append(Fault(f"goes on after its end with {word!r}"))
    return [*faults, *(Fault(f"has a {mark} without its other half") for mark in halves)]


def text_length(text: str) -> int:
    """The length of a text in letters, whatever its script."""
    return len(text) + (_LETTERS_OF_DENSE - 1) * len(_DENSE.findall(text))


def unclosed(text: str) -> list[str]:
    """The brackets and quotation marks of a text without their other half."""
    found = [opening for opening, closing in _BRACKETS.items() if text.count(opening) != text.count(closing)]
    return [*found, '"'] if text.count('"') % 2 else found


def after_end(text: str) -> str:
    """A word in small letters after a full stop that is not of an abbreviation; empty if there is none."""
    for found in _GOES_ON.finditer(text):
        if found[2].islower() and found[1].casefold() not in ABBREVIATIONS:
            return found[2]
    return ""


def repetition(text: str) -> str:
    """What a text says several times in a row; empty if there is nothing.

    That is a phrase that comes twice, a word that comes three times, or a part of a word that comes four times.
    Two words may come again in the next clause ("if it is an error, an error is raised").
    """
    lowered = text.lower()
    found = [*_WORD.finditer(lowered)]
    words = [each[0] for each in found]
    if len(words) - len(set(words)) >= 2:
        last: dict[str, int] = {}
        for place, word in enumerate(words):
            length = place - last.get(word, place)
            last[word] = place
            if 0 < length <= _MAX_REPEATED:
                phrase = words[place - length : place]
                again = words[place : place + max(length, 2)]
                is_next_clause = length == 2 and "," in lowered[found[place - 1].end() : found[place].start()]
                if again == (phrase if length > 1 else 2 * phrase) and not (
                    "".join(phrase).isdigit() or is_next_clause
                ):
                    return " ".join(phrase)
    stutter = _STUTTER.search(text)
    return stutter[1] if stutter else ""


def invented(source: str, target: str, has: Collection[Placeholder], wanted: Collection[Placeholder]) -> list[Fault]:
    """Placeholders, tags and numbers of a translation that its source lacks.

    has, wanted: the placeholders and numbers of the translation and of its source
    """
    there, needed = Needs.of(has), Needs.of(wanted)
    more = [each for each in there.exact - needed.exact if source.count(each) < there.exact[each]]
    if "<" in target or "&lt;" in target:
        more += _tags(target) - _tags(source)
    shown = "".join(more)
    more += [sign for sign in more_signs(source, target) if sign not in shown]
    faults = [Fault(f"has {each}, which the source lacks") for each in more]
    numbers = [run for run in there.digits - needed.digits if len(run) > 2 or int(run) > MAX_SPELLED_OUT]
    return faults + [Fault(f"has the number {run}, which the source lacks", run) for run in numbers]


def more_signs(source: str, target: str) -> list[str]:
    """The signs of placeholders and tags that a translation has more often than its source."""
    return [sign for sign in sorted(_SIGNS.intersection(target)) if target.count(sign) > source.count(sign)]


def lost_signs(source: str, target: str) -> list[str]:
    """The signs of a source that its translation has less often: several in a row, or one of those that are kept.

    They show that a placeholder was changed whose kind is not known, such as `~~name~~`.
    """
    if _ROW_SIGNS.isdisjoint(source):
        return []
    wanted, has = (Counter(_IN_A_ROW.findall(text)) for text in (source, target))
    more = more_signs(source, target)
    lost = [row for row in wanted - has if row[0] not in more]
    single = _KEPT_SIGNS.intersection(source).difference(*lost)
    return [*lost, *(sign for sign in sorted(single) if target.count(sign) < source.count(sign))]


def signs_to_keep(text: str) -> list[tuple[int, int]]:
    """The places of the signs that a translation of this text must have as often (`lost_signs`)."""
    return [] if _ROW_SIGNS.isdisjoint(text) else [found.span() for found in _TO_KEEP.finditer(text)]


def _tags(text: str) -> Counter[str]:
    return Counter(part.raw for part in with_tags(text) if isinstance(part, Code))
