"""HTML: texts between block tags, with other tags as codes; and readable attributes."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape

from knnmt.corpus.languages import is_tag
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import Replacing, Unit
from knnmt.documents.elements import core, joined
from knnmt.documents.markup import ATTRIBUTE
from knnmt.documents.provenance import Provenances
from knnmt.protection.marked import Code, Marked, Role

_CHARSET = re.compile(rb"""<meta[^<>]+charset\s*=\s*+["']?\s*([\w.:-]+)""", re.IGNORECASE)
# Every pattern takes unclosed input up to the end, so that a file of nothing but beginnings is read once.
_TOKEN = re.compile(
    r"""(?P<aside><!--(?:.*?-->|.*) | <!(?:[^>]*>|.*) | <\?(?:[^>]*>|.*))
    | <(?P<closes>/?)(?P<name>[A-Za-z][^\s/>]*+)(?:[^'">] | "[^"]*(?:"|\Z) | '[^']*(?:'|\Z))*+>?
    | (?P<text>[^<]+|<)""",
    re.DOTALL | re.VERBOSE,
)
_VALUE = re.compile(ATTRIBUTE.pattern[:-1] + r"""|([^\s"'>]+))""")
_SPACES = " \t\r\n\f"
_SPACE = re.compile(r"[ \t\r\n\f]+")  # no-break spaces are text
_TAG = re.compile(r"<[^>]*>?")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_INLINE = _names(
    "a abbr acronym b bdi bdo big br cite data del dfn em font i img ins label mark q rp rt ruby s small span strike "
    "strong sub sup time u wbr"
)
_OPAQUE = _names("code kbd samp tt var")  # inside a text, but not translated
_SKIPPED = _names("script style pre svg math textarea object iframe canvas audio video")
_READ = _names("alt title placeholder aria-label")
_LETTERS = re.compile(r"[^\W\d_]")


@dataclass(slots=True)
class _Token:
    kind: str  # "text", "aside", "open", "close" or "whole": an element whose content is skipped
    name: str
    start: int
    end: int


@dataclass(slots=True)
class _Attribute:
    """A readable attribute of a tag."""

    name: str
    tag: tuple[int, int]
    place: tuple[int, int]


class HtmlPage(Replacing):
    """A page. Scripts, styles, preformatted text and elements with translate="no" are left out."""

    format = "html"

    def __init__(self, data: bytes, name: str) -> None:
        stated = _CHARSET.search(data[:4096])
        content = Content(data, name, stated[1].decode("ascii") if stated else "utf-8", references=True)
        tokens = list(_tokens(content.text, content.start))
        attributes = [each for token in tokens if token.kind == "open" for each in _attributes(content.text, token)]
        self._tags = {each.place: each.tag for each in attributes}
        found = [*_texts(content, tokens), *_attribute_units(content, attributes)]
        super().__init__(content, found, (_language(content.text, tokens), None))

    def written(self, unit: Unit, target: Marked, /) -> str:
        place = self.places[unit.id]
        if place in self._tags:
            quote = self.content.text[place[0] - 1]
            text = "".join(part for part in target if isinstance(part, str))
            return _escaped(text).replace(quote, "&quot;" if quote == '"' else "&#39;")
        return "".join(part.raw if isinstance(part, Code) else _escaped(part) for part in target)

    def edits(self, targets: Mapping[str, str], _provenances: Provenances, /) -> Iterable[Edit]:
        texts = {self.places[name]: text for name, text in targets.items() if self.places[name] not in self._tags}
        places = sorted(texts)
        inside: dict[tuple[int, int], list[Edit]] = {}
        for name, text in targets.items():
            place = self.places[name]
            if place not in self._tags:
                continue
            before = bisect(places, place) - 1
            if before >= 0 and place[0] < places[before][1]:
                inside.setdefault(places[before], []).append(Edit(*place, text))
            else:
                yield Edit(*place, text)
        for place, text in texts.items():
            yield Edit(*place, self._with_attributes(text, inside.get(place, [])))

    def _with_attributes(self, text: str, edits: list[Edit]) -> str:
        """A text whose codes are tags with translated attributes."""
        tags: dict[tuple[int, int], list[Edit]] = {}
        for edit in edits:
            tags.setdefault(self._tags[edit.start, edit.end], []).append(edit)
        for (start, end), changes in tags.items():
            new, place = "", start
            for edit in sorted(changes):
                new += self.content.text[place : edit.start] + edit.text
                place = edit.end
            text = text.replace(self.content.text[start:end], new + self.content.text[place:end], 1)
        return text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\u00a0", "&nbsp;")


def _tokens(text: str, start: int) -> Iterator[_Token]:
    place = start
    while place < len(text):
        found = _TOKEN.match(text, place)
        assert found is not None  # noqa: S101 - the pattern matches anything
        name = (found["name"] or "").lower()
        kind = "text" if found["text"] is not None else "aside" if found["aside"] is not None else "open"
        token = _Token("close" if found["closes"] else kind, name, place, found.end())
        if token.kind == "open" and _is_whole(found[0], name):
            token = _Token("whole", name, place, _end_of(text, name, found.end()))
        yield token
        place = token.end


def _is_whole(tag: str, name: str) -> bool:
    if name in _SKIPPED or name in _OPAQUE:
        return not tag.endswith("/>")
    if name in _VOID or ("translate" not in tag and "notranslate" not in tag):
        return False
    values = _values(tag)
    return values.get("translate", "").lower() == "no" or "notranslate" in values.get("class", "").split()


def _end_of(text: str, name: str, start: int) -> int:
    """The position after the tag that closes an element; nested elements of the same name have their own."""
    depth = 1
    for tag in re.compile(rf"<(/?){re.escape(name)}(?=[\s/>])[^>]*>?", re.IGNORECASE).finditer(text, start):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return tag.end()
    return len(text)


def _values(tag: str) -> dict[str, str]:
    return {name.lower(): unescape(double or single or bare) for name, double, single, bare in _VALUE.findall(tag)}


def _texts(content: Content, tokens: Iterable[_Token]) -> Iterator[tuple[Unit, tuple[int, int]]]:
    waiting: list[_Token] = []
    for token in tokens:
        if token.kind == "text" or token.kind == "aside" or token.name in _INLINE or token.name in _OPAQUE:
            waiting.append(token)
        else:
            yield from _text(content, waiting)
            waiting = []
    yield from _text(content, waiting)


def _text(content: Content, tokens: list[_Token]) -> Iterator[tuple[Unit, tuple[int, int]]]:
    parts = list(_parts(content.text, tokens))
    first, last = core(tuple(parts))
    words = joined(parts[first:last])
    if not any(isinstance(part, str) and _LETTERS.search(part) for part in words):
        return
    start, end = tokens[first].start, tokens[last - 1].end
    stripped = list(words)
    if isinstance(stripped[0], str):
        start += len(content.text[start:end]) - len(content.text[start:end].lstrip(_SPACES))
        stripped[0] = stripped[0].lstrip(_SPACES)
    if isinstance(stripped[-1], str):
        end = start + len(content.text[start:end].rstrip(_SPACES))
        stripped[-1] = stripped[-1].rstrip(_SPACES)
    yield Unit(f"line {content.line_number(start)}", joined(stripped)), (start, end)


def _parts(text: str, tokens: Iterable[_Token]) -> Iterator[str | Code]:
    open_tags: list[tuple[str, int]] = []
    pairs = 0
    for token in tokens:
        raw = text[token.start : token.end]
        if token.kind == "text":
            yield unescape(_SPACE.sub(" ", raw))
        elif token.kind == "open" and token.name not in _VOID:
            pairs += 1
            open_tags.append((token.name, pairs))
            yield Code(raw, Role.OPENING, pairs)
        elif token.kind == "close":
            is_last = bool(open_tags) and open_tags[-1][0] == token.name
            yield Code(raw, Role.CLOSING, open_tags.pop()[1] if is_last else None)
        elif token.kind == "whole":
            yield Code(raw, shown=_SPACE.sub(" ", unescape(_TAG.sub("", raw))).strip())
        else:
            yield Code(raw)


def _attributes(text: str, token: _Token) -> Iterator[_Attribute]:
    tag = text[token.start : token.end]
    values: dict[str, str] | None = None
    for found in ATTRIBUTE.finditer(tag):
        name, which = found[1].lower(), 2 if found[2] is not None else 3
        wanted = name in _READ
        if name in ("content", "value") and not wanted:
            values = values or _values(tag)
            wanted = (name == "content" and values.get("name", "").lower() == "description") or (
                name == "value" and token.name == "input" and values.get("type") in ("submit", "button", "reset")
            )
        if wanted and _LETTERS.search(found[which]):
            place = token.start + found.start(which), token.start + found.end(which)
            yield _Attribute(name, (token.start, token.end), place)


def _attribute_units(content: Content, attributes: Iterable[_Attribute]) -> Iterator[tuple[Unit, tuple[int, int]]]:
    for each in attributes:
        text = unescape(content.text[slice(*each.place)])
        yield Unit(f"line {content.line_number(each.place[0])} {each.name}", (text,)), each.place


def _language(text: str, tokens: Iterable[_Token]) -> str | None:
    for token in tokens:
        if token.name == "html":
            stated = _values(text[token.start : token.end]).get("lang", "")
            return stated if is_tag(stated) else None
    return None
