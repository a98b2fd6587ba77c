"""Properties of Java: keys and values, with their escapes, in UTF-8 or Latin-1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from knnmt.documents.content import Content, marked_encoding
from knnmt.documents.document import Replacing, Unit
from knnmt.protection.marked import Marked, written

_ENTRY = re.compile(
    r"""^[ \t\f]*+ (?: [#!][^\r\n]*+ |                               # a comment, or
    (?P<key> (?: \\(?:\r\n|.) | [^\s=:\\] )++ )                      # a key,
    [ \t\f]*+ [=:]?+ (?:[ \t\f]|\\(?:\r\n|[\r\n])[ \t\f]*+)*+        # what parts it from its value,
    (?P<value> (?: \\(?:\r\n|.) | [^\r\n\\] )*+ )                    # and that, which goes on behind a backslash
    )""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|[\r\n])[ \t\f]*|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_PATTERN = re.compile(r"\{\d")  # of java.text.MessageFormat, in which apostrophes are doubled


class Properties(Replacing):
    """A file of properties."""

    format = "properties"

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name, _encoding(data))
        # A file of ASCII is valid in both encodings as long as it stays ASCII.
        self._writes_ascii = content.text.isascii()
        super().__init__(content, _found(content))

    def written(self, unit: Unit, target: Marked, /) -> str:
        text = written(target)
        if _is_pattern(unit.source):
            text = text.replace("'", "''")
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        text = f"\\{text}" if text.startswith((" ", "\f", "=", ":")) else text
        return "".join(each if self._holds(each) else _as_escapes(each) for each in text)

    def _holds(self, character: str) -> bool:
        return character.isascii() or (not self._writes_ascii and self.content.can_hold(character))


def _encoding(data: bytes) -> str:
    """UTF-8, which Java has read since version 9, unless the bytes are not UTF-8: then Latin-1, as before."""
    if marked_encoding(data):
        return "utf-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _found(content: Content) -> Iterator[tuple[Unit, tuple[int, int]]]:
    for entry in _ENTRY.finditer(content.text, content.start):
        if entry["key"] is not None:
            text = _unescaped(entry["value"])
            source = text.replace("''", "'") if _PATTERN.search(text) else text
            yield Unit(_unescaped(entry["key"]), (source,) if source else ()), entry.span("value")


def _is_pattern(source: Marked) -> bool:
    return any(isinstance(part, str) and _PATTERN.search(part) for part in source)


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPED.get(found[2], found[2]) if found[2] else ""

    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _as_escapes(character: str) -> str:
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[place : place + 2].hex().upper()}" for place in range(0, len(data), 2))
