"""What must come out of a segment: its codes, placeholders, numbers and terms, told before it is decoded.

A code that stands for a word is shown to the model, as what a person reads of it or as a stand-in. Other codes are
taken out, as are line ends and other white space in the middle of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from knnmt.corpus.accelerators import accelerators_in
from knnmt.corpus.glossary import Glossary
from knnmt.datastore.sources import HeldSources
from knnmt.protection.layout import Layout
from knnmt.protection.marked import Code, Marked, Role
from knnmt.protection.tags import is_formatting
from knnmt.translator.guarded import Coded, Guarded, found_in, margins, shared_out
from knnmt.translator.segments import TextSegment, pieces_of, understood

_BLANK = re.compile(r"[^\S ]\s*| \s+")
_BEFORE_WORD, _AFTER_WORD = "([{\"'„“‚‘«»‹›/-", ")]}\"'”“’‘»«›‹.,:;!?…/-"


@dataclass(frozen=True, slots=True)
class Guarding:
    """What of a text is guarded.

    protect: placeholders, numbers, accelerators and white space; terms of a glossary, if there is one, always are
    writes: whether the model's vocabulary can write a text
    """

    protect: bool
    glossary: Glossary | None
    writes: Callable[[str], bool]

    def segments(self, layout: Layout, by_sentence: bool, held: HeldSources | None, whole: bool) -> list[TextSegment]:
        """The segments of a text. held: what the memory holds; whole: what it holds is not cut"""
        segments: list[TextSegment] = []
        for number, leaf in enumerate(layout.leaves):
            text, codes = _flattened(leaf, self.writes)
            pieces = pieces_of(text, by_sentence, held if whole else None)
            for piece, mine in zip(pieces, shared_out(codes, pieces), strict=True):
                segments.append(_guarded(piece, mine, held, self, number))
        return segments


def _guarded(
    piece: str, codes: Sequence[Coded], held: HeldSources | None, guarding: Guarding, leaf: int
) -> TextSegment:
    segment = understood(piece, held)
    plain = piece.strip()
    start = len(segment.before)
    inside = [replace(each, offset=each.offset - start) for each in codes]
    if guarding.protect:
        segment, inside = _without_accelerator(segment, plain, inside, held)
        if not (segment.held and "\n" in segment.text):
            segment, inside = _without_blanks(segment, inside)
    before, after, kept = margins(segment.before, segment.text, segment.after, inside)
    guarded = Guarded(
        before=before,
        after=after,
        codes=kept,
        found=found_in(segment.text, kept) if guarding.protect else (),
        terms=tuple(guarding.glossary.uses(segment.text)) if guarding.glossary is not None else (),
        leaf=leaf,
    )
    return replace(segment, before="", after="", guarded=guarded)


def _flattened(leaf: Marked, writes: Callable[[str], bool]) -> tuple[str, list[Coded]]:
    """A text with what is shown of its codes, and where they are."""
    text = ""
    codes: list[Coded] = []
    all_words = "".join(part for part in leaf if isinstance(part, str))
    for number, part in enumerate(leaf):
        if isinstance(part, str):
            text += part
            continue
        shown = part.shown if part.role is Role.ALONE and writes(part.shown) else ""
        following = next((each for each in leaf[number + 1 :] if isinstance(each, str) and each), " ")
        if not shown and part.role is Role.ALONE and not is_formatting(part):
            is_word = (text[-1:] or " ") in _BEFORE_WORD + " " and following[0] in _AFTER_WORD + " "
            shown = next((each for each in _stand_ins() if each not in all_words + text and writes(each)), "")
            shown = shown if is_word or part.shown else ""
        codes.append(Coded(len(text), replace(part, shown=shown), len(shown)))
        text += shown
    return text, codes


def _stand_ins() -> Iterator[str]:
    """What stands for a word that is not known: forms that models have seen as placeholders."""
    for number in range(1, 100):
        yield f"{{{number}}}"
    for number in range(1, 100):
        yield f"X{number}"


def _without_accelerator(
    segment: TextSegment, plain: str, codes: list[Coded], held: HeldSources | None
) -> tuple[TextSegment, list[Coded]]:
    """Without its accelerator, if it has one: where a memory does not say, & before a letter is one, too."""
    candidates = list(accelerators_in(plain))
    if segment.mark:
        here = next((each for each in candidates if each.mark == segment.mark), None)
    elif held is None or held.without_accelerators:
        here = next((each for each in candidates if each.sure or each.mark == "&"), None)
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


def _without_blanks(segment: TextSegment, codes: list[Coded]) -> tuple[TextSegment, list[Coded]]:
    """With one space for all other white space, which becomes codes."""
    text, found = segment.text, list(codes)
    for match in reversed(list(_BLANK.finditer(text))):
        start, end = match.span()
        text = f"{text[:start]} {text[end:]}"
        found = [
            replace(each, offset=max(start, each.offset - (end - start - 1))) if each.offset > start else each
            for each in found
        ]
        found.append(Coded(start, Code(match.group()), blank=True))
    return replace(segment, text=text), sorted(found, key=lambda each: each.offset)
