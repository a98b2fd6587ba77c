"""Plain text: a unit a line, as `knnmt translate` has it for text files by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from knnmt.documents.content import Content, Edit
from knnmt.documents.document import TextDocument, Unit
from knnmt.protection.marked import Marked, written

_LINE = re.compile(r"[^\r\n]+")


class PlainText(TextDocument):
    """Lines of text."""

    format = "text"
    bilingual = False

    def __init__(self, data: bytes, name: str) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        content = Content(data, name)
        super().__init__(content, self._units(content))

    def _units(self, content: Content) -> Iterator[Unit]:
        number, place = 1, 0
        for line in _LINE.finditer(content.text, 1 if content.text.startswith("\ufeff") else 0):
            number += content.text.count("\n", place, line.start())
            place = line.start()
            self._places[f"line {number}"] = line.span()
            yield Unit(f"line {number}", (line[0],))

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return written(target).replace("\n", " ")

    def edits(self, targets: Mapping[str, str]) -> Iterable[Edit]:
        return (Edit(*self._places[name], text) for name, text in targets.items())
