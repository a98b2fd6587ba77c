"""Cuts text into sentences, and overlong sentences at clause ends, without losing a character.

The rules prefer to miss a boundary: half a sentence loses its context, but two sentences together do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate, pairwise

# A full stop after these does not end a sentence, or so rarely that cutting there does not pay.
_ABBREVIATIONS = frozenset(
    """
    abb abs abschn allg anm art aufl bd bez bl bsp bspw bzgl bzw ca cf chr dgl dipl dr eg ehem eigtl einschl entspr ev
    evtl exkl fa fig fr frl gegr gem ggf hl hr hrn hrsg ie incl ing inkl insb insbes jh jr kap kath lit lt max med min
    mind mio mr mrd mrs ms nr od op pos prof rd ref resp rev sec sen sog sp sr st std str stv tab tel ua urspr usf usw
    vgl vol vs wg zb zit zt zw zzgl jan feb mär apr jun jul aug sep sept okt oct nov dez dec
    """.split()  # noqa: SIM905
)
_CLOSING = "\"'”’“»«›‹)]}"
_OPENING = "\"'„“‚‘»«›‹([{¿¡"
_END = re.compile(rf"(?P<mark>(?<![.!?…])[.!?…]++[{re.escape(_CLOSING)}]*+(?=\s)|[。！？]+[」』）]*|\n)\s*")
_LINE_END = re.compile(
    rf"""
    (?<=[.!?…:;。！？：；]) [{re.escape(_CLOSING)}]* [^\S\n]* \n \s*  # the end of a sentence
    | \n [^\S\n]* \n \s*                                   # an empty line
    | \n [^\S\n]* (?=[-*•·–—]\s | \d{{1,3}}[.)]\s)          # what begins with a bullet or a number
    """,
    re.VERBOSE,
)
_MAX_WORD_CHARACTERS = 40  # how far back a relevant word can begin
_ROMAN = re.compile(r"[IVXLC]+$")


def has_words(text: str) -> bool:
    """Whether a text has a letter or a digit; if not, it is its own translation."""
    return any(map(str.isalnum, text))


def split_sentences(text: str) -> list[str]:
    """Pieces of one sentence each, with the white space that follows it; joined, they are `text` again."""
    pieces = []
    start = 0
    begin = len(text) - len(text.lstrip())
    for match in _END.finditer(text):
        if begin < match.end() < len(text) and _is_boundary(text, start, match):
            pieces.append(text[start : match.end()])
            start = match.end()
    return [*pieces, text[start:]] if text[start:] else pieces


def split_lines(text: str) -> list[str]:
    """Pieces that end where a line ends, with the following white space; joined, they are `text` again.

    A line break inside a sentence only wraps it and does not count. It is one if no paragraph or list item begins after
    it and no punctuation is before it.
    """
    begin = len(text) - len(text.lstrip())
    ends = [match.end() for match in _LINE_END.finditer(text) if begin < match.end() < len(text)]
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)])] if text else []


def _is_boundary(text: str, start: int, end: re.Match[str]) -> bool:
    mark, after = end["mark"], end.end()
    if "\n" in end.group() or mark[0] in "。！？":
        return True
    while after < len(text) and text[after] in _OPENING:
        after += 1
    following = text[after : after + 1]
    if following.islower() or not following.isalnum():
        return False
    if mark != ".":
        return True
    begin = end.start()
    while begin > max(start, end.start() - _MAX_WORD_CHARACTERS) and text[begin - 1].isalnum():
        begin -= 1
    word = text[begin : end.start()]
    if word.isdigit():
        return len(word) > 2  # "am 3. Mai", but "im Jahr 2020. Danach"
    if len(word) == 1 or _ROMAN.fullmatch(word):
        return False
    return word.lower() not in _ABBREVIATIONS and not word.endswith("str")


# Where to cut a sentence that is too long, best places first; the last resort is anywhere.
_CUTS = [
    re.compile(r"(?<=[;:])\s+"),
    re.compile(r"(?<=[,)])\s+|(?<!\s)\s+(?=[-–—(])"),
    re.compile(r"\s+"),
    re.compile(r""),
]


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces that fit, cut at the best available places; joined, they are `text` again."""
    if fits(text) or len(text) < 2:
        return [text]
    sentences = split_sentences(text)
    if len(sentences) > 1:
        ends = list(accumulate(map(len, sentences[:-1])))
    else:
        ends = next(ends for cut in _CUTS if (ends := [m.end() for m in cut.finditer(text) if 0 < m.end() < len(text)]))
    middle = min(ends, key=lambda end: abs(end - len(text) / 2))
    return split_long(text[:middle], fits) + split_long(text[middle:], fits)
