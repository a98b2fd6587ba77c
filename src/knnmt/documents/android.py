"""Strings of Android (strings.xml): strings, arrays and plurals, with their escapes, mark-up and CDATA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from knnmt.corpus.plural_forms import form_contexts
from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit
from knnmt.documents.elements import Kind, joined, marked_text, plain
from knnmt.documents.markup import Element, escaped, parse, xml_content
from knnmt.protection.marked import Code, Marked, written
from knnmt.protection.tags import with_tags

_PIECE = re.compile(r"""\\(?P<code>u[0-9a-fA-F]{4}|.)|(?P<quote>")|[^\\"]+""", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
_SPACE = re.compile(r"\s+")
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)
_REFERENCE = re.compile(r"[@?][\w:+./-]+")


class AndroidStrings(Replacing):
    """A file of resources. Plural forms are those that it has: more, for another language, are to be added by hand."""

    format = "android"

    def __init__(self, data: bytes, name: str) -> None:
        content = xml_content(data, name)
        self._in_cdata: set[tuple[int, int]] = set()
        super().__init__(content, self._found(content, parse(content, "resources")))

    def _found(self, content: Content, root: Element) -> Iterator[tuple[Unit, tuple[int, int]]]:
        for element in root.children:
            name = element.attributes.get("name", "")
            translatable = element.attributes.get("translatable") != "false"
            if element.local == "string":
                yield self._unit(content, element, name, translatable)
            elif element.local in ("string-array", "plurals"):
                items = list(element.each("item"))
                names = [item.attributes.get("quantity", str(number)) for number, item in enumerate(items)]
                units = [
                    self._unit(content, item, f"{name}[{which}]", translatable)
                    for item, which in zip(items, names, strict=True)
                ]
                sources = [written(unit.source) for unit, _ in units]
                contexts = form_contexts("", sources, names) if element.local == "plurals" else [""] * len(units)
                for (unit, place), context in zip(units, contexts, strict=True):
                    yield replace(unit, context=context), place

    def _unit(self, content: Content, element: Element, name: str, translatable: bool) -> tuple[Unit, tuple[int, int]]:
        raw = content.text[element.inside : element.inside_end]
        if (cdata := _CDATA.fullmatch(raw)) and "]]>" not in cdata[1]:
            place = element.inside + cdata.start(1), element.inside + cdata.end(1)
            self._in_cdata.add(place)
            source = with_tags(cdata[1], "xml")
        else:
            place = _stripped(content.text, element.inside, element.inside_end)
            source = marked_text(content, element, _rule)
        source = _read(source)
        is_reference = len(source) == 1 and _REFERENCE.fullmatch(plain(source)) is not None
        return Unit(name, source, translatable=translatable and not is_reference), place

    def written(self, unit: Unit, target: Marked, /) -> str:
        place = self.places[unit.id]
        in_cdata = place in self._in_cdata
        quoted = self.content.text[place[0] : place[1]].startswith('"')
        parts = [
            part.raw if isinstance(part, Code) else _escaped(part) if in_cdata else escaped(_escaped(part))
            for part in target
        ]
        text = "".join(parts)
        text = f"\\{text}" if text.startswith(("@", "?")) else text
        return f'"{text}"' if quoted else text


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The place without white space around it."""
    inside = text[start:end]
    start += len(inside) - len(inside.lstrip())
    return start, start + len(inside.strip())


def _rule(element: Element) -> tuple[Kind, str | None]:
    return (Kind.ALONE if element.name == "xliff:g" else Kind.AROUND), None


def _read(text: Marked) -> Marked:
    """What a person reads: white space as one space, unless it is in quotes, and escapes as what they mean."""
    parts: list[str | Code] = []
    is_quoted = False
    for part in text:
        if isinstance(part, Code):
            parts.append(part)
            continue
        for found in _PIECE.finditer(part):
            if found["quote"]:
                is_quoted = not is_quoted
            elif code := found["code"]:
                parts.append(chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code))
            else:
                parts.append(found[0] if is_quoted else _SPACE.sub(" ", found[0]))
    merged = list(joined(parts))
    if merged and isinstance(merged[0], str) and not is_quoted:
        merged[0] = merged[0].lstrip(" ")
    if merged and isinstance(merged[-1], str):
        merged[-1] = merged[-1].rstrip(" ")
    return joined(merged)


def _escaped(text: str) -> str:
    for character, code in (("\\", "\\\\"), ("'", "\\'"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(character, code)
    return text
