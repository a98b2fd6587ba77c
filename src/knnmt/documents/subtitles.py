"""Subtitles: SRT and WebVTT. A unit is a cue; its tags and the override codes of SSA and ASS are codes."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator
from html import unescape

from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit
from knnmt.documents.elements import joined
from knnmt.errors import MalformedDocumentError
from knnmt.protection.marked import Code, Marked, Role

_TIME = r"(?:\d+:)?\d\d:\d\d[.,]\d{3}"
_TIMING = re.compile(rf"^[ \t]*({_TIME})[ \t]+-->[ \t]+{_TIME}[^\r\n]*(?:\r\n|\n|\r)", re.MULTILINE)
_EMPTY_LINE = re.compile(r"(?>\r\n|\n|\r)[ \t]*(?=[\r\n])")
_CUE_END = re.compile(r"(?>\r\n|\n|\r)[ \t]*(?=[\r\n]|\Z)|\Z")
# A tag, the time of the next word, override codes such as {\an8}, or a line end or hard space of ASS.
_TAG = re.compile(r"<(/?)([A-Za-z]\w*+)[^<>]*+>|<[\d:.]++>|\{\\[^{}]*+\}|\\[Nh]")
_TAG_OR_SPACE = re.compile(r"<[^<>]*>|\{\\[^{}]*\}|(?<=\S) (?=\S)")
_NUMBER = re.compile(r"(?:(?>\r\n|\n|\r)\d*)?(?>\r\n|\n|\r)\Z")  # of the next cue
_LINE_END = re.compile(r"\r\n|\n|\r")


class Subtitles(Replacing):
    """Cues. The translation of a cue with several lines has as many lines, of about equal length."""

    format = "subtitles"

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name, "utf-8" if _is_utf8(data) else "cp1252")
        self._is_vtt = content.text[content.start :].startswith("WEBVTT")
        found = list(self._found(content))
        if not found and data.strip() and not self._is_vtt:
            raise MalformedDocumentError(f"{name}: expected subtitles with lines such as 00:00:01,000 --> 00:00:02,000")
        super().__init__(content, found)

    def _found(self, content: Content) -> Iterator[tuple[Unit, tuple[int, int]]]:
        timings = list(_TIMING.finditer(content.text, content.start))
        starts = [timing.start() for timing in timings[1:]] + [len(content.text)]
        for timing, following in zip(timings, starts, strict=False):
            is_last = following == len(content.text)
            end = (_CUE_END if is_last else _EMPTY_LINE).search(content.text, timing.end(), following)
            if end is None:  # without an empty line before the next one
                end = _NUMBER.search(content.text, timing.end(), following)
            stop = end.start() if end else timing.end()
            place = timing.end(), stop
            if stop <= timing.end() or _LINE_END.match(content.text, place[0]):
                continue  # a cue without text
            text = _LINE_END.sub("\n", content.text[slice(*place)])
            yield Unit(timing[1], self._read(text)), place

    def _read(self, text: str) -> Marked:
        parts: list[str | Code] = []
        opened: list[tuple[str, int]] = []
        place = 0
        for number, tag in enumerate(_TAG.finditer(text), 1):
            parts.append(text[place : tag.start()])
            place = tag.end()
            if tag[2] is None:
                parts.append(Code(tag[0]))
            elif not tag[1]:
                opened.append((tag[2], number))
                parts.append(Code(tag[0], Role.OPENING, number))
            else:
                is_last = bool(opened) and opened[-1][0] == tag[2]
                parts.append(Code(tag[0], Role.CLOSING, opened.pop()[1] if is_last else None))
        parts.append(text[place:])
        return joined(unescape(part) if isinstance(part, str) and self._is_vtt else part for part in parts)

    def written(self, unit: Unit, target: Marked, /) -> str:
        lines = sum(part.count("\n") for part in unit.source if isinstance(part, str)) + 1
        parts = [part.raw if isinstance(part, Code) else self._escaped(part) for part in target]
        text = "\n".join(line for line in "".join(parts).split("\n") if line.strip())
        if "\n" not in text and lines > 1:
            text = _wrapped(text, lines)
        return text.replace("\n", self.content.line_end)

    def _escaped(self, text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;") if self._is_vtt else text


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _wrapped(text: str, lines: int) -> str:
    """The text in so many lines, broken at the spaces nearest to equal parts; spaces in tags do not count."""
    spaces = [found.start() for found in _TAG_OR_SPACE.finditer(text) if found[0] == " "]
    letters = list(text)
    for line in range(lines - 1, 0, -1):
        wanted = len(text) * line / lines
        place = bisect(spaces, wanted)
        if near := range(max(place - 1, 0), min(place + 1, len(spaces))):
            best = min(near, key=lambda each: abs(spaces[each] - wanted))
            letters[spaces.pop(best)] = "\n"
    return "".join(letters)
