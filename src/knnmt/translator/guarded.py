"""What must be kept of a segment, with the positions of its codes, and how that is divided when the segment is cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from knnmt.corpus.glossary import TermUse
from knnmt.protection.marked import Code, Marked, Role, joined_strings
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import Needs, Placeholder, find


@dataclass(frozen=True, slots=True)
class Coded:
    """A code at a position of a text. length: of its shown text; blank: whether it is white space of the text itself"""

    offset: int
    code: Code
    length: int = 0
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Guarded:
    """What must be kept of a segment.

    before, after: the white space and the codes around its text, which stay there
    codes: those in its text
    placeholders: its placeholders and numbers
    shown: the texts that codes are shown as
    terms: the uses of glossary terms
    leaf: the number of its leaf in the text
    syntax: what counts as a placeholder
    """

    before: Marked = ()
    after: Marked = ()
    codes: tuple[Coded, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()
    terms: tuple[TermUse, ...] = ()
    leaf: int = 0
    syntax: PlaceholderSyntax = PLAIN

    def __bool__(self) -> bool:
        return bool(self.codes or self.placeholders or self.terms)

    @property
    def shown(self) -> frozenset[str]:
        """The texts that codes are shown as."""
        return frozenset(each.code.shown for each in self.codes if each.length)

    @property
    def needs(self) -> Needs:
        """What must be kept of its text."""
        return Needs.of(self.placeholders)

    def cut(self, text: str, into_pieces: Callable[[str], list[str]]) -> list[tuple[str, Guarded]]:
        """The text in pieces, without the white space around them, and what must be kept of each.

        into_pieces: cuts a text of the same length at its white space; placeholders have none
        """
        solid = list(text)
        for each in self.placeholders:
            solid[each.start : each.end] = ["_" if letter.isspace() else letter for letter in each.text]
        ends = list(accumulate(map(len, into_pieces("".join(solid)))))
        return self.cut_at(text, ends[:-1])

    def cut_at(self, text: str, places: Sequence[int]) -> list[tuple[str, Guarded]]:
        """The same, cut at given positions."""
        pieces = [text[start:end] for start, end in pairwise([0, *places, len(text)])]
        parts: list[tuple[str, Guarded]] = []
        start, waiting = 0, self.before
        for piece, mine in zip(pieces, shared_out(self.codes, pieces), strict=True):
            words = piece.strip()
            lead = len(piece) - len(piece.lstrip())
            moved = [replace(each, offset=each.offset - lead) for each in mine]
            before, after, kept = margins(piece[:lead], words, piece[lead + len(words) :], moved)
            if words:
                terms = tuple(each for each in self.terms if start <= each.start < start + len(piece))
                found = placeholders_in(words, kept, self.syntax) if self.placeholders else ()
                around = joined_strings([*waiting, *before])
                parts.append((words, Guarded(around, after, kept, found, terms, self.leaf, self.syntax)))
                waiting = ()
            else:
                waiting = joined_strings([*waiting, *before, *(each.code for each in kept), *after])
            start += len(piece)
        words, last = parts[-1]
        parts[-1] = words, replace(last, after=joined_strings([*last.after, *waiting, *self.after]))
        return parts


def shared_out(codes: Sequence[Coded], pieces: Sequence[str]) -> list[list[Coded]]:
    """The codes of each piece of a text, with their offsets there.

    At a border, closing codes belong to the first piece.
    """
    found: list[list[Coded]] = [[] for _ in pieces]
    ends = list(accumulate(map(len, pieces)))
    number = 0
    for each in codes:  # their order does not change
        while number < len(pieces) - 1 and (
            each.offset > ends[number] or (each.offset == ends[number] and each.code.role is not Role.CLOSING)
        ):
            number += 1
        found[number].append(replace(each, offset=each.offset - ends[number] + len(pieces[number])))
    return found


def placeholders_in(text: str, codes: Sequence[Coded], syntax: PlaceholderSyntax) -> tuple[Placeholder, ...]:
    """The placeholders and numbers of a text, and the shown text of its codes."""
    return tuple(find(text, frozenset(each.code.shown for each in codes if each.length), syntax))


def margins(before: str, text: str, after: str, codes: Sequence[Coded]) -> tuple[Marked, Marked, tuple[Coded, ...]]:
    """White space around a text with the codes that stay there, and the codes that belong to the text.

    codes: their offsets count from the beginning of the text
    """
    first, last = _outside(codes, len(text))
    kept = [replace(each, offset=min(max(each.offset, 0), len(text))) for each in codes[first : len(codes) - last]]
    return (
        _interleaved(before, codes[:first], len(before)),
        _interleaved(after, codes[len(codes) - last :], -len(text)),
        tuple(kept),
    )


def _outside(codes: Sequence[Coded], length: int) -> tuple[int, int]:
    """How many codes at the beginning and at the end are outside of a text of some length, and do not move with words.

    These are pairs around all of it or nothing, halves of pairs, and single codes, up to the first that encloses a part
    of the text.
    """
    first = last = 0
    while first < len(codes) and codes[first].offset <= 0 and not codes[first].length:
        first += 1
    while last < len(codes) - first and codes[-1 - last].offset >= length and not codes[-1 - last].length:
        last += 1
    pairs: dict[int | None, list[int]] = {}
    for number, each in enumerate(codes):
        if each.code.pair is not None:
            pairs.setdefault(each.code.pair, []).append(number)
    end = len(codes) - last
    inside = [*range(first, end)]
    while inside:  # the other half of a pair that is inside is inside, too
        for number in pairs.pop(codes[inside.pop()].code.pair, ()):
            inside += [*range(number, first), *range(end, number + 1)]
            first, end = min(first, number), max(end, number + 1)
    return first, len(codes) - end


def _interleaved(space: str, codes: Sequence[Coded], moved: int) -> Marked:
    """White space with codes in it, whose offsets are shifted."""
    parts: list[str | Code] = []
    place = 0
    for each in codes:
        offset = min(max(each.offset + moved, place), len(space))
        parts += [space[place:offset], each.code.raw if each.blank else each.code]
        place = offset + each.blank
    return joined_strings([*parts, space[place:]])


def with_shown_codes(text: Marked, guarded: Guarded) -> Marked:
    """A translation in which codes replace their shown texts: the n-th for the n-th."""
    codes = {each.offset: each.code for each in guarded.codes if each.length}
    if not codes:
        return joined_strings(text)
    shown = guarded.shown
    waiting: dict[str, deque[Code | None]] = {}
    for each in guarded.placeholders:
        if each.text in shown:
            waiting.setdefault(each.text, deque()).append(codes.get(each.start))
    parts: list[str | Code] = []
    for part in text:
        if isinstance(part, Code):
            parts.append(part)
            continue
        place = 0
        for each in find(part, shown, guarded.syntax):
            if waiting.get(each.text) and (code := waiting[each.text].popleft()) is not None:
                parts += [part[place : each.start], code]
                place = each.end
        parts.append(part[place:])
    return joined_strings(parts)
