"""The exact positions of the elements in an XML document.

A proper parser reads the document first, and fails with an error if it is malformed, too deep, or declares entities. A
pattern then cuts the accepted document into tags, and keeps every character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from xml.parsers import expat

from knnmt.documents.content import Content, Edit, marked_encoding
from knnmt.errors import MalformedDocumentError

_MAX_DEPTH = 200
_STATED = re.compile(rb"""<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z][\w.:-]*)["']""")
ATTRIBUTE = re.compile(r"""(?<![^\s=/<>"'])([^\s=/<>"']+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
# Both read well-formed XML: there, everything that begins ends, and no value contains <.
_TAG = re.compile(
    r"""<!--.*?(?:-->|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <\?.*?(?:\?>|\Z)
    | </(?P<closing>[^\s<>]+)\s*>
    | <(?P<name>[^\s/<>!?]+)
        (?P<attributes>(?:\s+[^\s/<>="']+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*) \s*(?P<empty>/?)>""",
    re.DOTALL | re.VERBOSE,
)
_PIECE = re.compile(
    r"(?P<cdata><!\[CDATA\[(?P<inside>.*?)(?:\]\]>|\Z))|(?P<skipped><!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z))"
    r"|(?P<reference>&[^;&<]+;)|(?P<text>[^<&]+)",
    re.DOTALL,
)
_PREDEFINED = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&apos;": "'"}


@dataclass(slots=True, eq=False)
class Element:
    """An element by its characters: start tag, content, end tag.

    name: as it is written, with its prefix
    inside, inside_end: the range of its content; both are `end` for an element that is one tag
    """

    name: str
    attributes: dict[str, str]
    start: int
    inside: int
    parent: Element | None = field(default=None, repr=False)
    inside_end: int = 0
    end: int = 0
    children: list[Element] = field(default_factory=list)

    @property
    def local(self) -> str:
        """Its name without the prefix."""
        return self.name.rpartition(":")[2]

    @property
    def prefix(self) -> str:
        """The prefix of its name, including the colon."""
        return self.name[: len(self.name) - len(self.local)]

    @property
    def is_one_tag(self) -> bool:
        return self.inside == self.end

    def child(self, local: str) -> Element | None:
        """The first child of that name with the element's own prefix; others belong to extensions."""
        return next(self.each(local), None)

    def each(self, *names: str) -> Iterator[Element]:
        """The children of these names, with the element's own prefix."""
        return (child for child in self.children if child.local in names and child.prefix == self.prefix)

    def walk(self) -> Iterator[Element]:
        """The element and everything in it, in the order of the document."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += reversed(element.children)

    def around(self) -> Iterator[Element]:
        """The element, its parent, and so on to the root."""
        element: Element | None = self
        while element is not None:
            yield element
            element = element.parent


def xml_content(data: bytes, name: str) -> Content:
    """The text of an XML document in the encoding that it states."""
    if encoding := marked_encoding(data):
        return Content(data, name, encoding, references=True)
    for start, encoding in ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be")):
        if data.startswith(start):
            return Content(data, name, encoding, references=True)
    stated = _STATED.match(data)
    return Content(data, name, stated[1].decode("ascii") if stated else "utf-8", references=True)


def parse(content: Content, *roots: str, max_elements: int = 2_000_000) -> Element:
    """The root element, which must have one of these names."""
    start = _check(content, max_elements)
    root = _tree(content.text, start)
    if roots and root.local not in roots:
        raise MalformedDocumentError(
            f"{content.name}: expected XML with the root element <{'> or <'.join(roots)}>, found <{root.name}>"
        )
    return root


def _check(content: Content, max_elements: int) -> int:
    """Read the document with a parser that checks well-formedness, and return where the root starts."""
    parser = expat.ParserCreate("utf-8")  # always UTF-8 here, whatever the document states
    depth = count = 0
    root_start = -1

    def refuse(what: str) -> None:
        line = parser.CurrentLineNumber
        raise MalformedDocumentError(f"{content.name}, line {line}: expected XML without {what}")

    def entity(name: str, *_: object) -> None:
        refuse(
            f"entities of its own, found a declaration of {name!r}. Entities can expand without end, or include "
            f"other files: replace it by its text and remove the declaration"
        )

    def attribute(_element: str, name: str, _type: str, default: str | None, _required: bool) -> None:
        if default is not None:
            refuse(f"a DOCTYPE that gives attributes values, found one for {name!r}")

    def opening(_name: str, _attributes: object) -> None:
        nonlocal depth, count, root_start
        if root_start < 0:
            root_start = parser.CurrentByteIndex
        depth, count = depth + 1, count + 1
        if depth > _MAX_DEPTH:
            refuse(f"more than {_MAX_DEPTH} nested elements")
        if count > max_elements:
            refuse(f"more than {max_elements:,} elements")

    def closing(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.EntityDeclHandler = entity
    parser.AttlistDeclHandler = attribute
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_ALWAYS)  # nothing is loaded: without a handler
    parser.StartElementHandler = opening
    parser.EndElementHandler = closing
    data = content.text.removeprefix("\ufeff").encode("utf-8")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise MalformedDocumentError(f"{content.name}: expected well-formed XML, found: {error}") from error
    mark = 1 if content.text.startswith("\ufeff") else 0
    return mark + len(data[:root_start].decode("utf-8"))


def _tree(text: str, start: int) -> Element:
    root: Element | None = None
    current: Element | None = None
    for tag in _TAG.finditer(text, start):
        if name := tag["name"]:
            element = Element(name, attributes_of(tag["attributes"]), tag.start(), tag.end(), current)
            if current is not None:
                current.children.append(element)
            root = root or element
            if tag["empty"]:
                element.inside_end = element.end = tag.end()
            else:
                current = element
        elif tag["closing"] and current is not None:
            current.inside_end, current.end = tag.start(), tag.end()
            current = current.parent
            if current is None:
                break
    assert root is not None  # noqa: S101 - the parser found one
    return root


def attributes_of(text: str) -> dict[str, str]:
    """The attributes of a start tag, their references resolved."""
    return {name: unescape(double or single) for name, double, single in ATTRIBUTE.findall(text)}


class Piece:
    """A part between the tags of an element: text, or something that is passed on unchanged."""

    __slots__ = ("kind", "raw", "text")

    def __init__(self, kind: str, raw: str, text: str) -> None:
        self.kind, self.raw, self.text = kind, raw, text


def pieces(raw: str) -> Iterator[Piece]:
    """The pieces of content without tags. kind: "text", "cdata" or "other" (a comment, an unknown entity)."""
    for found in _PIECE.finditer(raw):
        if found["cdata"] is not None:
            yield Piece("cdata", found[0], found["inside"].replace("\r\n", "\n"))
        elif found["skipped"] is not None:
            yield Piece("other", found[0], "")
        elif (reference := found["reference"]) is not None:
            if reference.startswith("&#"):
                yield Piece("text", reference, _character(reference))
            elif reference in _PREDEFINED:
                yield Piece("text", reference, _PREDEFINED[reference])
            else:
                yield Piece("other", reference, "")
        else:
            yield Piece("text", found[0], found[0].replace("\r\n", "\n"))


def _character(reference: str) -> str:
    digits = reference[2:-1]
    return chr(int(digits[1:], 16) if digits[0] == "x" else int(digits))


def escaped(text: str) -> str:
    """Text as it is written between tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")


def with_attributes(content: Content, element: Element, **values: str) -> str:
    """The element's start tag with attributes that are changed in place or added at its end; no longer an empty tag.

    A keyword's underscores become hyphens, and two of them a colon.
    """
    tag = content.text[element.start : element.inside]
    head = tag.removesuffix(">").removesuffix("/") if element.is_one_tag else tag.removesuffix(">")
    space = head[len(head.rstrip()) :]
    head = head.rstrip()
    for keyword, value in values.items():
        name = keyword.replace("__", ":").replace("_", "-")
        stands = re.compile(rf"""(?<=\s)({re.escape(name)}\s*=\s*)(?:"[^"]*"|'[^']*')""")
        if found := stands.search(head):
            head = f'{head[: found.start()]}{found[1]}"{value}"{head[found.end() :]}'
        else:
            head = f'{head} {name}="{value}"'
    return f"{head}{'' if element.is_one_tag else space}>"


def marked_start(content: Content, element: Element, **values: str) -> Edit:
    """An edit that sets attributes of an element, and keeps its form of one tag or two."""
    tag = with_attributes(content, element, **values)
    if element.is_one_tag:
        original = content.text[element.start : element.inside]
        spaced = original.removesuffix(">").removesuffix("/")
        tag = tag.removesuffix(">") + spaced[len(spaced.rstrip()) :] + "/>"
    return Edit(element.start, element.inside, tag)


def with_content(content: Content, element: Element, inside: str, **values: str) -> Edit:
    """An edit that gives an element new content, and sets attributes."""
    tag = with_attributes(content, element, **values)
    if element.is_one_tag:
        return Edit(element.start, element.end, f"{tag}{inside}</{element.name}>")
    return Edit(element.start, element.inside_end, f"{tag}{inside}")
