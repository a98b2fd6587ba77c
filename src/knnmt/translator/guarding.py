"""What must be kept of a segment: its codes, placeholders, numbers and terms, found before it is decoded.

A code that stands for a word is shown to the model, as its readable text or as a stand-in. Other codes are taken out,
and so are line ends and other white space in the middle of a sentence.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise

from knnmt.corpus.accelerators import Accelerator, accelerators_in
from knnmt.corpus.glossary import Glossary
from knnmt.datastore.sources import HeldSources
from knnmt.protection.layout import Layout
from knnmt.protection.marked import Code, Marked, Role, read
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import find
from knnmt.protection.tags import is_formatting
from knnmt.translator.guarded import Coded, Guarded, margins, placeholders_in, shared_out
from knnmt.translator.segments import TextSegment, pieces_of, understood

# White space other than one space. The second one also finds line ends and tabs that are written with a backslash.
_BLANKS = re.compile(r" \s++|[^\S ]\s*+")
_BLANKS_OR_ESCAPES = re.compile(r" (?:\s|\\[nrt])++|(?:[^\S ]|\\[nrt])(?:\s|\\[nrt])*+")
_LEADING_DOTS = re.compile(r"(?:\.{3}|…)(?=[^\W\d])")
_LABEL_WORDS = 6  # characters of a label in which _ before a word is an accelerator
_LABEL_WORD_LETTERS = 4  # of such a word, including the mark: _id is a name
_BEFORE_WORD, _AFTER_WORD = "([{\"'„“‚‘«»‹›/-", ")]}\"'”“’‘»«›‹.,:;!?…/-"


@dataclass(frozen=True, slots=True)
class Guarding:
    """What of a text is guarded.

    protect: placeholders, numbers, accelerators and white space; terms of a glossary always are
    writes: whether the model's vocabulary can write a text
    syntax: what counts as a placeholder
    """

    protect: bool
    glossary: Glossary | None
    writes: Callable[[str], bool]
    syntax: PlaceholderSyntax = PLAIN

    def segments(self, layout: Layout, by_sentence: bool, held: HeldSources | None, whole: bool) -> list[TextSegment]:
        """The segments of a text. held: the sources in the memory; whole: do not cut those"""
        segments: list[TextSegment] = []
        for number, leaf in enumerate(layout.leaves):
            text, codes = _flattened(leaf, self.writes)
            pieces = pieces_of(text, by_sentence, held if whole else None)
            for place, (piece, mine) in enumerate(zip(pieces, shared_out(codes, pieces), strict=True)):
                begins = place > 0 or number not in layout.inside
                segments.append(_guarded(piece, mine, held, self, number, begins))
        return segments


def _guarded(
    piece: str, codes: Sequence[Coded], held: HeldSources | None, guarding: Guarding, leaf: int, begins: bool
) -> TextSegment:
    segment = understood(piece, held)
    plain = piece.strip()
    start = len(segment.before)
    inside = [replace(each, offset=each.offset - start) for each in codes]
    if guarding.protect:
        segment, inside = _without_accelerator(segment, plain, inside, held)
        if not (segment.held and "\n" in segment.text):
            is_held = held is not None and segment.text in held
            if not is_held:
                segment, inside = _stripped(segment, inside)
            segment, inside = _without_blanks(segment, inside, is_held)
    before, after, kept = margins(segment.before, segment.text, segment.after, inside)
    guarded = Guarded(
        before=before,
        after=after,
        codes=kept,
        placeholders=placeholders_in(segment.text, kept, guarding.syntax) if guarding.protect else (),
        terms=tuple(guarding.glossary.uses(segment.text)) if guarding.glossary is not None else (),
        leaf=leaf,
        syntax=guarding.syntax,
    )
    return replace(segment, before="", after="", guarded=guarded, begins=begins)


def _flattened(leaf: Marked, writes: Callable[[str], bool]) -> tuple[str, list[Coded]]:
    """A text with the shown text of its codes, and their positions."""
    parts: list[str] = []
    length, last = 0, " "
    codes: list[Coded] = []
    stand_ins = _stand_ins(read(leaf), writes)
    for part, following in zip(leaf, _first_letters_after(leaf), strict=True):
        if isinstance(part, str):
            shown = part
        else:
            shown = part.shown if part.role is Role.ALONE and writes(part.shown) else ""
            if not shown and part.role is Role.ALONE and not is_formatting(part):
                is_word = last in _BEFORE_WORD + " " and following in _AFTER_WORD + " "
                shown = next(stand_ins, "") if is_word or part.shown else ""
            codes.append(Coded(length, replace(part, shown=shown), len(shown)))
        parts.append(shown)
        length += len(shown)
        last = shown[-1:] or last
    return "".join(parts), codes


def _first_letters_after(leaf: Marked) -> list[str]:
    """The first character of the words that follow each part; a space at the end."""
    found, following = [], " "
    for part in reversed(leaf):
        found.append(following)
        following = part[0] if isinstance(part, str) and part else following
    return found[::-1]


def _stand_ins(text: str, writes: Callable[[str], bool]) -> Iterator[str]:
    """Stand-ins for unknown words that the text does not have: forms that models have seen as placeholders."""
    yield from braced_stand_ins(text, writes)
    yield from (each for number in range(1, 100) if (each := f"X{number}") not in text and writes(each))


def braced_stand_ins(text: str, writes: Callable[[str], bool]) -> Iterator[str]:
    """`{1}` and so on, as far as the text does not have them.

    writes: whether the model's vocabulary can write a text
    """
    return (each for number in range(1, 100) if (each := f"{{{number}}}") not in text and writes(each))


def _without_accelerator(
    segment: TextSegment, plain: str, codes: list[Coded], held: HeldSources | None
) -> tuple[TextSegment, list[Coded]]:
    """Without its accelerator, if it has one."""
    candidates = list(accelerators_in(plain))
    if segment.mark:
        here = next((each for each in candidates if each.mark == segment.mark), None)
    elif held is None or held.without_accelerators:
        here = next((each for each in candidates if _is_likely(each, plain, held)), None)
        if here is not None and (segment.form or segment.text != plain):
            here = None
        if here is not None:
            segment = replace(segment, text=here.dropped_from(plain), mark=here.mark)
    else:
        here = None
    if here is None:
        return segment, codes
    length = here.end - here.start
    key = plain[here.end : here.end + 1] if length == 1 else ""
    moved = [replace(each, offset=each.offset - length) if each.offset > here.start else each for each in codes]
    return replace(segment, key=key), moved


def _is_likely(found: Accelerator, text: str, held: HeldSources | None) -> bool:
    """Whether a mark is an accelerator if no memory says so: & before a letter, _ before a word of a short label."""
    if found.sure or found.mark == "&":
        return True
    is_label = len(text.split()) <= _LABEL_WORDS and (not text.endswith(".") or text.endswith(".."))
    in_front = found.word.startswith("_") and len(found.word) >= _LABEL_WORD_LETTERS
    return in_front and is_label and (held is None or text not in held)


def _stripped(segment: TextSegment, codes: list[Coded]) -> tuple[TextSegment, list[Coded]]:
    """With line ends and tabs that are written with a backslash, and an initial ellipsis, around the text."""
    places = _escapes(segment.text)
    length = len(segment.text)
    start = places[0][1] if places and not places[0][0] else 0
    if dots := _LEADING_DOTS.match(segment.text, start):
        start = dots.end()
    end = places[-1][0] if places and places[-1][1] == length and places[-1][0] >= start else length
    if start == end or end - start == length:  # there are no words, or there is nothing else
        return segment, codes
    before, after = segment.before + segment.text[:start], segment.text[end:] + segment.after
    moved = [replace(each, offset=each.offset - start) for each in codes]
    return replace(segment, text=segment.text[start:end], before=before, after=after), moved


def _escapes(text: str) -> list[tuple[int, int]]:
    """White space of more than one space or written with a backslash, except for what looks like it in a path."""
    paths = [each for each in find(text) if "\\" in each.text and len(each.text) > len("\\n")] if "\\" in text else []
    ends = [each.end for each in paths]

    def is_in_path(start: int, end: int) -> bool:
        following = bisect_right(ends, start)
        return following < len(paths) and paths[following].start < end

    spans = (found.span() for found in _BLANKS_OR_ESCAPES.finditer(text))
    return [span for span in spans if not is_in_path(*span)]


def _without_blanks(segment: TextSegment, codes: list[Coded], is_held: bool) -> tuple[TextSegment, list[Coded]]:
    """With one space for all other white space, which becomes codes.

    Two spaces with a code between them are one before the code, and one that follows it as a code.

    is_held: the memory has the text, so a backslash in it is not white space
    """
    spans = [found.span() for found in _BLANKS.finditer(segment.text)] if is_held else _escapes(segment.text)
    if not spans:
        return segment, codes
    starts = [start for start, _ in spans]
    lost = list(accumulate((end - start - 1 for start, end in spans), initial=0))
    offsets = {each.offset for each in codes}
    divided = {start for start, end in spans if segment.text[start:end] == "  " and start + 1 in offsets}

    def moved(offset: int) -> int:
        before = bisect_left(starts, offset)
        if before and offset < spans[before - 1][1]:
            return starts[before - 1] - lost[before - 1] + (starts[before - 1] in divided)
        return offset - lost[before]

    placed = [(each.offset, replace(each, offset=moved(each.offset))) for each in codes]
    placed += [
        (start + 1, Coded(moved(start + 1), Code(" ")))
        if start in divided
        else (start, Coded(moved(start), Code(segment.text[start:end]), blank=True))
        for start, end in spans
    ]
    places = pairwise([0, *(place for span in spans for place in span), len(segment.text)])
    text = " ".join(segment.text[start:end] for start, end in islice(places, None, None, 2))
    return replace(segment, text=text), [code for _, code in sorted(placed, key=lambda each: (each[1].offset, each[0]))]
