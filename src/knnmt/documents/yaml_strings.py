"""YAML of interface strings, as in Rails and others: plain, quoted, literal and folded strings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit, short_id
from knnmt.errors import MalformedDocumentError, MissingDependencyError
from knnmt.protection.marked import Marked, written

_MAX_CHARACTERS = 1 << 23  # takes a minute to read
_MAX_DEPTH = 100
_STRING = "tag:yaml.org,2002:str"
_BLOCK = re.compile(r"[|>][^\r\n]*(\r\n|\n|\r)")
_PLAIN = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`][^\r\n\t]*")
_UNSAFE, _UNSAFE_IN_FLOW = re.compile(r": |:$| #"), re.compile(r"[^\w .-]")
_FLOW = "flow"  # the style of an unquoted string in brackets
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")  # an anchor and a tag before a value
_Found = tuple[Unit, tuple[int, int]]


class YamlStrings(Replacing):
    """Every string that is a value."""

    format = "yaml"

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name)
        self._styles: dict[tuple[int, int], str] = {}
        super().__init__(content, self._found(content))

    def _found(self, content: Content) -> Iterator[_Found]:
        seen: set[int] = set()  # an alias is the node that it refers to
        for number, root in enumerate(_documents(content)):
            waiting: list[tuple[str, int, Any, bool]] = [(f"{number}" if number else "", 0, root, False)]
            while waiting:
                path, depth, node, in_flow = waiting.pop()
                if node is None or id(node) in seen:
                    continue
                seen.add(id(node))
                if depth > _MAX_DEPTH:
                    raise MalformedDocumentError(f"{content.name}: expected YAML less than {_MAX_DEPTH} deep")
                if node.id == "scalar":
                    if node.tag == _STRING and node.value:
                        yield self._unit(content, path, node, in_flow)
                    continue
                pairs = (
                    enumerate(node.value) if node.id == "sequence" else ((key.value, each) for key, each in node.value)
                )
                flow = in_flow or bool(node.flow_style)
                waiting += reversed([(_join(path, str(key)), depth + 1, each, flow) for key, each in pairs])

    def _unit(self, content: Content, path: str, node: Any, in_flow: bool) -> _Found:
        start, end = node.start_mark.index, node.end_mark.index
        if before := _PROPERTIES.match(content.text, start, end):
            start = before.end()
        if node.style in ("|", ">"):
            head = _BLOCK.match(content.text, start)
            assert head is not None  # noqa: S101 - that is what makes it a block
            start = head.end()
            end = start + len(content.text[start:end].rstrip())
        self._styles[start, end] = node.style or (_FLOW if in_flow else "")
        return Unit(path, (node.value.rstrip("\n") if node.style in ("|", ">") else node.value,)), (start, end)

    def written(self, unit: Unit, target: Marked, /) -> str:
        text, place = written(target), self.places[unit.id]
        style = self._styles[place]
        if style in ("|", ">"):
            return self._block(text, place, style)
        if style == "'" and "\n" not in text:
            return "'" + text.replace("'", "''") + "'"
        if style in ("", _FLOW) and _is_plain(text, style == _FLOW):
            return text
        return json.dumps(text, ensure_ascii=False)

    def _block(self, text: str, place: tuple[int, int], style: str) -> str:
        stood = self.content.text[place[0] : place[1]]
        indent = re.match(r"(?:[ ]*(?:\r\n?+|\n))*+([ ]*)", stood)
        space = indent[1] if indent else ""
        between = "\n\n" if style == ">" else "\n"  # a single line end folds into a space
        lines = between.join(text.split("\n")).split("\n")
        return self.content.line_end.join(f"{space}{line}" if line else "" for line in lines)


def _documents(content: Content) -> list[Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError("PyYAML", f"reading {content.name}, which is YAML,", "documents") from error
    if len(content.text) > _MAX_CHARACTERS:
        raise MalformedDocumentError(f"{content.name}: expected at most {_MAX_CHARACTERS >> 20} MiB of YAML")
    try:
        return list(yaml.compose_all(content.text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        found = " ".join(str(error).split())
        raise MalformedDocumentError(f"{content.name}: expected YAML, found: {found}") from error
    except RecursionError as error:
        raise MalformedDocumentError(f"{content.name}: expected YAML less than {_MAX_DEPTH} deep") from error


def _join(path: str, key: str) -> str:
    return short_id(f"{path}.{short_id(key)}" if path else key)


def _is_plain(text: str, in_flow: bool) -> bool:
    """Whether a text may be written without quotes, and is then read as a string."""
    import yaml

    if not _PLAIN.fullmatch(text) or _UNSAFE.search(text) or text != text.strip():
        return False
    if in_flow and _UNSAFE_IN_FLOW.search(text):
        return False
    return bool(yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False)) == _STRING)
