"""The text of a segment with inline elements: keeps readable text and drops mark-up.

A document has two kinds of codes. Pairs enclose something (bold, a link) and contain no text themselves. A single code
may be a placeholder, which is part of the sentence, or mark-up, such as a line break.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from knnmt.corpus.markup import local_name
from knnmt.corpus.report import UnitError

if TYPE_CHECKING:
    from lxml import etree

_MAX_DEPTH = 100
_NONE: Mapping[str, str] = {}
_TAG = re.compile(r"<[^<>]*>")
_RTF = re.compile(r"\s*(?:[{}]\s*$|\{?\\(?![nrt]\b)[A-Za-z*])")
_RTF_CONTROL = re.compile(r"\\(?:\*|[A-Za-z]+-?\d*) ?|[{}]")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_OPENING, _CLOSING, _JOINING = "([{«„‚¿¡", ".,;:!?…)]}»”’", "-/"


class _Gap(Enum):
    """Where a code was dropped: one of a pair, or a single code, which may have separated words."""

    OF_PAIR = "of pair"
    ALONE = "alone"


_Part = str | _Gap


@dataclass(frozen=True, slots=True)
class InlineRules:
    """Elements that are codes, in pairs or alone; the text of all other elements always stays.

    keep: the whole content of codes counts as text, even mark-up
    """

    paired: frozenset[str]
    alone: frozenset[str]
    keep: bool


@dataclass(frozen=True, slots=True)
class Codes:
    """What other elements say about codes.

    data: the original text of codes in XLIFF 2, by the id of the data
    shown: what codes without a text of their own stand for, by the id of the code
    """

    data: Mapping[str, str]
    shown: Mapping[str, str]


def segment_texts(
    source: etree._Element,
    target: etree._Element,
    rules: InlineRules,
    data: Mapping[str, str] = _NONE,
    shown: dict[str, str] | None = None,
) -> tuple[str, str]:
    """The texts of both sides, without comments and processing instructions.

    data, shown: as in `Codes`
    If one side gives no text for a code, it takes the text of the code with the same id on the other side.
    """
    if not len(source) and not len(target):
        return source.text or "", target.text or ""
    own = {name: text for side in (source, target) for name, text in _shown_codes(side, rules, data)}
    codes = Codes(data, ChainMap(own, shown or {}))
    return _joined(_parts(source, rules, codes)), _joined(_parts(target, rules, codes))


def visible_text(code: str) -> str:
    """The part of a single code that is not mark-up: "{0}", "%s" or "Fig. 3", nothing of "<br/>" or of "{\\b "."""
    if not code.strip():
        return code
    text = _TAG.sub("", code)
    if _RTF.match(text):
        text = _RTF_CONTROL.sub("", text)
    return text if text.strip() else ""


def _shown_codes(side: etree._Element, rules: InlineRules, data: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for child in side.iter():
        if isinstance(child.tag, str) and local_name(child) in rules.alone and (name := _id(child)):
            code = _code(child, data)
            if text := code if rules.keep else visible_text(code):
                yield name, text


def _parts(element: etree._Element, rules: InlineRules, codes: Codes, depth: int = 0) -> Iterator[_Part]:
    if depth > _MAX_DEPTH:
        raise UnitError(f"expected inline elements, found them nested more than {_MAX_DEPTH} deep")
    yield element.text or ""
    for child in element:
        tag: object = child.tag
        if isinstance(tag, str):
            yield from _child_parts(child, rules, codes, depth + 1)
        elif entity := getattr(child, "name", None):
            raise UnitError(f"expected text, found the entity &{entity}; which the file does not declare")
        yield child.tail or ""


def _child_parts(child: etree._Element, rules: InlineRules, codes: Codes, depth: int) -> Iterator[_Part]:
    name = local_name(child)
    if name == "cp":
        yield _character(child.get("hex", ""))
    elif name in rules.paired | rules.alone:
        yield from _code_parts(child, rules, codes, depth)
    else:
        if rules.keep:
            yield codes.data.get(child.get("dataRefStart", ""), "")
        yield from _parts(child, rules, codes, depth)
        if rules.keep:
            yield codes.data.get(child.get("dataRefEnd", ""), "")


def _code_parts(child: etree._Element, rules: InlineRules, codes: Codes, depth: int) -> Iterator[_Part]:
    alone = local_name(child) in rules.alone
    code = _code(child, codes.data) or (codes.shown.get(_id(child), "") if alone else "")
    text = code if rules.keep else visible_text(code) if alone else ""
    if len(child) and (text or rules.keep):
        yield from _parts(child, rules, codes, depth)
    elif text or rules.keep:
        yield text
    else:
        yield _Gap.ALONE if alone else _Gap.OF_PAIR
        for inner in child:  # translatable text inside mark-up, such as a title or a footnote
            if isinstance(inner.tag, str):
                yield from _parts(inner, rules, codes, depth + 1)
                yield _Gap.ALONE


def _code(child: etree._Element, data: Mapping[str, str]) -> str:
    """The code's own text, without translatable text inside it."""
    own = "".join([child.text or "", *(inner.tail or "" for inner in child)])
    name = child.get("equiv", "")
    said = (own, data.get(child.get("dataRef", "")), child.get("disp"), child.get("equiv-text"))
    return next((text for text in said if text), "" if _NAME.fullmatch(name) else name)


def _id(child: etree._Element) -> str:
    return child.get("id") or child.get("x") or ""


def _joined(parts: Iterable[_Part]) -> str:
    """The text, with the necessary white space where codes were dropped."""
    done: list[str] = []
    gap: _Gap | None = None
    for part in parts:
        if isinstance(part, _Gap):
            gap = part if gap is None or part is _Gap.ALONE else gap
        elif part:
            if gap is not None:
                part = _after_gap(done, part, gap)
                gap = None
            done.append(part)
    if gap is not None and done:
        done[-1] = done[-1].rstrip()
    return "".join(done)


def _after_gap(done: list[str], part: str, gap: _Gap) -> str:
    """The text to append after a gap; removes a superfluous space before it."""
    before, after = done[-1][-1:] if done else " ", part[0]
    if not done:
        return part.lstrip()
    if before.isspace() and (after.isspace() or after in _CLOSING):
        done[-1] = done[-1][:-1]
    parted = before.isspace() or after.isspace() or before in _OPENING + _JOINING or after in _CLOSING + _JOINING
    return part if parted or gap is _Gap.OF_PAIR else f" {part}"


def _character(code: str) -> str:
    try:
        character = chr(int(code, 16))
        character.encode("utf-8")
        return character
    except (ValueError, OverflowError) as error:
        raise UnitError(f"expected <cp> with the hexadecimal code of a character, found hex={code!r}") from error
