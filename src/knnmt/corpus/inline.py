"""The text of a segment that has elements in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from knnmt.corpus.markup import local_name
from knnmt.corpus.report import UnitError

if TYPE_CHECKING:
    from lxml import etree

_DEEPEST = 100
_NO_DATA: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class InlineRules:
    """Elements that are codes, and whether their text is kept. The text of all other elements always is."""

    codes: frozenset[str]
    keep: bool


def segment_text(
    element: etree._Element, rules: InlineRules, data: Mapping[str, str] = _NO_DATA, depth: int = 0
) -> str:
    """The text of an element without comments and processing instructions.

    `data` is what XLIFF 2 keeps apart of the codes' text, by id.
    """
    if len(element) == 0:
        return element.text or ""
    if depth > _DEEPEST:
        raise UnitError(f"expected inline elements, found them nested more than {_DEEPEST} deep")
    parts = [element.text or ""]
    for child in element:
        tag: object = child.tag
        if isinstance(tag, str):
            parts.append(_child_text(child, rules, data, depth + 1))
        elif entity := getattr(child, "name", None):
            raise UnitError(f"expected text, found the entity &{entity}; which the file does not declare")
        parts.append(child.tail or "")
    return "".join(parts)


def _child_text(child: etree._Element, rules: InlineRules, data: Mapping[str, str], depth: int) -> str:
    name = local_name(child)
    if name == "cp":
        return _character(child.get("hex", ""))
    if name in rules.codes:
        if not rules.keep:
            return ""
        return segment_text(child, rules, data, depth) or data.get(child.get("dataRef", ""), "")
    text = segment_text(child, rules, data, depth)
    if rules.keep and data:
        return data.get(child.get("dataRefStart", ""), "") + text + data.get(child.get("dataRefEnd", ""), "")
    return text


def _character(code: str) -> str:
    try:
        character = chr(int(code, 16))
        character.encode("utf-8")
        return character
    except (ValueError, OverflowError) as error:
        raise UnitError(f"expected <cp> with the hexadecimal code of a character, found hex={code!r}") from error
