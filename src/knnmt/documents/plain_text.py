"""Plain text: each line is a unit, as in `knnmt translate` for text files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit
from knnmt.protection.marked import Marked, written

_LINE = re.compile(r"[^\r\n]+")


class PlainText(Replacing):
    """Lines of text."""

    format = "text"

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name)
        super().__init__(content, _lines(content))

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return written(target).replace("\n", " ")


def _lines(content: Content) -> Iterator[tuple[Unit, tuple[int, int]]]:
    number, place = 1, 0
    for line in _LINE.finditer(content.text, content.start):
        if line[0].isspace():
            continue
        number += content.text.count("\n", place, line.start())
        place = line.start()
        yield Unit(f"line {number}", (line[0],)), line.span()
