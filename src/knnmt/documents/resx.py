"""Resources of .NET (resx, resw): strings with names."""

from __future__ import annotations

from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit
from knnmt.documents.elements import Kind, as_markup, marked_text
from knnmt.documents.markup import Element, parse, xml_content
from knnmt.protection.marked import Marked


class Resources(Replacing):
    """A file of resources. Entries with a type (pictures, sizes) or for a control (>>) are not text."""

    format = "resx"

    def __init__(self, data: bytes, name: str) -> None:
        content = xml_content(data, name)
        super().__init__(content, _found(content, parse(content, "root")))

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return as_markup(target, self.content)


def _found(content: Content, root: Element) -> Iterator[tuple[Unit, tuple[int, int]]]:
    for data in root.each("data"):
        value = data.child("value")
        name = data.attributes.get("name", "")
        if value is None or value.is_one_tag:
            continue
        is_text = not {"type", "mimetype"} & data.attributes.keys() and not name.startswith(">>")
        source = marked_text(content, value, _rule)
        yield Unit(name, source, translatable=is_text), (value.inside, value.inside_end)


def _rule(_element: Element) -> tuple[Kind, str | None]:
    return Kind.AROUND, None
