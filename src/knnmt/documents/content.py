"""The text of a document in its own encoding, and edits that leave the rest untouched."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from knnmt.corpus.report import UnitError
from knnmt.corpus.text_encodings import text_encoding
from knnmt.errors import MalformedDocumentError
from knnmt.records import shown

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_LINE_END = re.compile(r"\r\n|\n|\r")


class Edit(NamedTuple):
    """Characters from `start` to `end` of a text become `text`; if `start` equals `end`, it is inserted there."""

    start: int
    end: int
    text: str


def marked_encoding(data: bytes) -> str | None:
    """The encoding that a byte order mark names."""
    return next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)


class Content:
    """A document's text, including a byte order mark.

    references: write characters that the encoding lacks as character references of XML
    """

    def __init__(self, data: bytes, name: str, encoding: str = "utf-8", references: bool = False) -> None:
        stated = marked_encoding(data) or encoding
        known = text_encoding(stated)
        if known is None:
            raise MalformedDocumentError(
                f"{name}: expected text in a known encoding, found {shown(stated)}. Convert it to UTF-8"
            )
        encoding = known
        try:
            self.text = data.decode(encoding)
        except UnicodeDecodeError as error:
            raise MalformedDocumentError(
                f"{name}: expected text in {encoding}, found byte 0x{data[error.start]:02x} at {error.start:,}. "
                "Convert the file, or correct the encoding that it states"
            ) from error
        self.name = name
        self._counted = (0, 1)
        self._encoding = encoding
        self._errors = "xmlcharrefreplace" if references else "strict"
        # Some encodings write one text in several ways; then untouched parts could change.
        if self.text.encode(encoding) != data:
            raise MalformedDocumentError(
                f"{name}: its text cannot be written back unchanged in {encoding}. Convert it to UTF-8"
            )

    @property
    def start(self) -> int:
        """Where the text begins, after a byte order mark."""
        return 1 if self.text.startswith("\ufeff") else 0

    @cached_property
    def line_end(self) -> str:
        """How the first line ends."""
        found = _LINE_END.search(self.text)
        return found[0] if found else "\n"

    def line_number(self, place: int) -> int:
        """The line number of a character, counted from 1."""
        start, number = self._counted if self._counted[0] <= place else (0, 1)  # mostly called in increasing order
        number += self.text.count("\n", start, place)
        self._counted = place, number
        return number

    def indent(self, place: int) -> str | None:
        """The white space between the beginning of a line and a place in it; None if there is more, or no line before.

        Only that white space is read: a file may be one long line.
        """
        start = place
        while start and self.text[start - 1] != "\n" and self.text[start - 1].isspace():
            start -= 1
        return self.text[start:place] if start and self.text[start - 1] == "\n" else None

    def can_hold(self, text: str) -> bool:
        """Whether the encoding has these characters."""
        try:
            self.require(text)
        except UnitError:
            return False
        return True

    def require(self, text: str) -> None:
        """Raise an error for text that the encoding cannot hold."""
        try:
            text.encode(self._encoding, self._errors)
        except UnicodeEncodeError as error:
            raise UnitError(
                f"expected a translation that can be written in {self._encoding}, found {text[error.start]!r}. "
                "Convert the document to UTF-8"
            ) from error

    def replaced(self, edits: Iterable[Edit]) -> bytes:
        """The document with these edits; the same edit may come twice."""
        pieces, done = [], 0
        for edit in sorted(dict.fromkeys(edits)):
            if edit.start < done:
                raise ValueError(f"edits overlap at {edit.start}")
            pieces += [self.text[done : edit.start], edit.text]
            done = edit.end
        return "".join([*pieces, self.text[done:]]).encode(self._encoding, self._errors)
