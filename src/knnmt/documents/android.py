"""Strings of Android (strings.xml): strings, arrays and plurals, with their escapes, mark-up and CDATA."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from knnmt.corpus.languages import normalise
from knnmt.corpus.plural_forms import form_contexts
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import Replacing, Unit, short_id
from knnmt.documents.elements import Kind, joined, marked_text, plain
from knnmt.documents.markup import Element, escaped, parse, with_attributes, xml_content
from knnmt.documents.provenance import Provenances
from knnmt.engine.language_codes import same_language
from knnmt.protection.marked import Code, Marked, written
from knnmt.protection.tags import with_tags

_PIECE = re.compile(r"""\\(?P<code>u[0-9a-fA-F]{4}|.)|(?P<quote>")|[^\\"]+""", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
_SPACE = re.compile(r"\s+")
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)
_REFERENCE = re.compile(r"[@?][\w:+./-]+")
_CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_LANGUAGES = {  # the plural categories of each language, from the Unicode CLDR
    "other": "id ja jv km ko lo ms my su th vi wo yo yue zh",
    "one other": "af am as az bg bn da de el en eo et eu fa fi fil fo fy gl gu ha hi hu hy is ka kk kn ku ky lb mg mk "
    "ml mn mr nb ne nl nn no or pa ps si so sq st sv sw ta te ti tk tl tn tr ts ur uz xh yi zu",
    "one many other": "ca es fr ht it pt",
    "one two other": "he iw se",
    "one few other": "bs hr ro sr",
    "zero one other": "lv",
    "one few many other": "be cs lt pl ru sk uk",
    "one two few other": "dsb gd hsb sl",
    "one two few many other": "br ga mt",
    "zero one two few many other": "ar cy",
}


class _Found(NamedTuple):
    """A unit and its characters. forms: the plural forms that it belongs to; added: the quantity of a missing one"""

    unit: Unit
    place: tuple[int, int]
    forms: _Forms | None = None
    added: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Forms:
    """The plural forms of a text. unused: those that the target language does not have; missing: those that it needs"""

    other: Element
    unused: tuple[Element, ...]
    missing: tuple[str, ...]


class AndroidStrings(Replacing):
    """A file of resources.

    languages: of source and target. Plural forms become those of the target language, if it is known: unused ones are
        left out, and missing ones are made from the form "other".
    """

    format = "android"

    def __init__(self, data: bytes, name: str, languages: tuple[str | None, str | None] = (None, None)) -> None:
        content = xml_content(data, name)
        self._in_cdata: set[tuple[int, int]] = set()
        needed = _plural_categories(languages[1]) if languages[1] else None
        found = list(self._found(content, parse(content, "resources"), needed))
        super().__init__(content, ((each.unit, each.place) for each in found))
        self._found_by_id = {unit.id: each for unit, each in zip(self.units, found, strict=True)}

    def _found(self, content: Content, root: Element, needed: Sequence[str] | None) -> Iterator[_Found]:
        for element in root.children:
            name = short_id(element.attributes.get("name", ""))
            translatable = element.attributes.get("translatable") != "false"
            if element.local == "string":
                yield self._unit(content, element, name, translatable)
            elif element.local in ("string-array", "plurals"):
                forms = _forms(element, needed) if needed and translatable else None
                items = list(element.each("item"))
                names = [item.attributes.get("quantity", str(number)) for number, item in enumerate(items)]
                found = []
                for item, which in zip(items, names, strict=True):
                    is_used = forms is None or item not in forms.unused
                    found.append(self._unit(content, item, f"{name}[{which}]", translatable and is_used))
                if forms is not None:
                    names += forms.missing
                    others = [self._unit(content, forms.other, f"{name}[{which}]", True) for which in forms.missing]
                    found += [each._replace(added=which) for each, which in zip(others, forms.missing, strict=True)]
                sources = [written(each.unit.source) for each in found]
                contexts = form_contexts("", sources, names) if element.local == "plurals" else [""] * len(found)
                for each, context in zip(found, contexts, strict=True):
                    yield each._replace(unit=replace(each.unit, context=context), forms=forms)

    def edits(self, targets: Mapping[str, str], _provenances: Provenances, /) -> Iterable[Edit]:
        added: dict[_Forms, str] = {}
        for name, text in targets.items():
            _, place, forms, quantity = self._found_by_id[name]
            if forms is not None:
                more = self._item(forms.other, place, quantity, text) if quantity else ""
                added[forms] = added.get(forms, "") + more
            if quantity is None:
                yield Edit(*place, text)
        for forms, items in added.items():
            yield Edit(forms.other.start, forms.other.start, items)
            for item in forms.unused:
                yield Edit(item.start - len(_space_before(self.content, item)), item.end, "")

    def _item(self, other: Element, place: tuple[int, int], quantity: str, text: str) -> str:
        """An item like that of the form "other", and the separator between items."""
        content = self.content
        start = with_attributes(content, other, quantity=quantity) + content.text[other.inside : place[0]]
        return start + text + content.text[place[1] : other.end] + _space_before(content, other)

    def _unit(self, content: Content, element: Element, name: str, translatable: bool) -> _Found:
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
        return _Found(Unit(name, source, translatable=translatable and not is_reference), place)

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


def _forms(plurals: Element, needed: Sequence[str]) -> _Forms | None:
    """Forms of which the target language may need others; None for a list, and for repeated forms."""
    items = list(plurals.each("item"))
    there = {item.attributes.get("quantity", ""): item for item in items}
    known = plurals.local == "plurals" and {"other"} <= there.keys() <= {*_CATEGORIES}
    if not known or len(there) < len(items):
        return None
    unused = tuple(item for quantity, item in there.items() if quantity not in needed)
    return _Forms(there["other"], unused, tuple(quantity for quantity in needed if quantity not in there))


def _space_before(content: Content, element: Element) -> str:
    start = element.start
    while start and content.text[start - 1].isspace():
        start -= 1
    return content.text[start : element.start]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The position without white space around it."""
    inside = text[start:end]
    start += len(inside) - len(inside.lstrip())
    return start, start + len(inside.strip())


def _rule(element: Element) -> tuple[Kind, str | None]:
    return (Kind.ALONE if element.name == "xliff:g" else Kind.AROUND), None


def _read(text: Marked) -> Marked:
    """The readable text: white space as one space, unless it is in quotes, and escapes resolved."""
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


def _plural_categories(tag: str) -> tuple[str, ...] | None:
    """The plural categories of a language, in order; None for an unknown language."""
    own = normalise(tag).partition("-")[0]
    for categories, languages in _LANGUAGES.items():
        if any(own == language or same_language(tag, language) for language in languages.split()):
            return tuple(categories.split())
    return None
