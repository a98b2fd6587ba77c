"""Tags in plain text: HTML, XML and the inline elements of XLIFF and TMX, distinguished from words.

In the mode "xml", everything that is written like a tag is one. In "html" and "auto" it must be a known element: one of
HTML, or in "auto" of XLIFF or TMX, or it closes itself, or its other half is there. "<Datei>" in the usage of a command
is text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from knnmt.protection.marked import Code, Marked, Role
from knnmt.protection.placeholders import find

Tags = Literal["auto", "xml", "html", "none"]
TAGS: tuple[Tags, ...] = ("auto", "xml", "html", "none")

_VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
_BREAKING = frozenset(
    """
    address article aside blockquote br caption dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav
    ol option p pre section table tbody td tfoot th thead title tr ul
    """.split()  # noqa: SIM905
)
_INLINE = frozenset(
    """
    a abbr acronym b bdi bdo big button cite code data del dfn em font i ins kbd label mark q s samp select small span
    strike strong sub sup textarea time tt u var
    """.split()  # noqa: SIM905
)
_HTML = _VOID | _BREAKING | _INLINE
_WHOLE = frozenset({"ph", "it", "bpt", "ept", "ut"})  # their content is code
_HALVES = {"bpt": Role.OPENING, "ept": Role.CLOSING, "bx": Role.OPENING, "ex": Role.CLOSING}
_HALVES |= {"sc": Role.OPENING, "ec": Role.CLOSING}
_EXCHANGE = _WHOLE | _HALVES.keys() | {"g", "x", "mrk", "pc", "hi", "cp"}

_ATTRIBUTES = r"(?:\s+[\w:.-]+(?:\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>=`/]+))?)*"
_NAMED = rf"(?P<slash{{0}}>/?)(?P<name{{0}}>[A-Za-z][\w:.-]*)(?P<attributes{{0}}>{_ATTRIBUTES})\s*(?P<self{{0}}>/?)"
_TAG = re.compile(
    "|".join(
        [
            r"(?P<comment><!--|<!(?i:doctype)\b[^<>]*>|<\?[A-Za-z][^<>]*\?>|<!\[CDATA\[|\]\]>)",
            f"<{_NAMED.replace('{0}', '1')}>",
            f"&lt;{_NAMED.replace('{0}', '2')}&gt;",
        ]
    ),
    re.DOTALL,
)
_COMMENT = "<!--"
_KEYS = [re.compile(rf"""\b(?:{names})\s*=\s*["']([^"']*)["']""") for names in ("rid|startRef|i", "id")]
_LINE_BREAK = re.compile(r"""\b(?:ctype|type|equiv)\s*=\s*["'](?:x-)?(?:html-)?(?:lb|br|fmt:lb)\b""")
_STAYS = re.compile(r"""\btranslate\s*=\s*["']?no\b""", re.IGNORECASE)
_NAME = re.compile(r"(?:<|&lt;)/?([A-Za-z][\w:.-]*)")


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag in a text. key: shared with its other half; sure: it is a tag even without another half"""

    start: int
    end: int
    raw: str
    role: Role
    key: tuple[str, str]
    sure: bool
    shown: str = ""


def with_tags(text: str, mode: Tags = "auto", whole: Collection[str] = ()) -> Marked:
    """A text whose tags are codes. `written` gives the original text.

    whole: elements that are one code together with their content
    """
    if mode == "none" or not ("<" in text or "&lt;" in text):
        return (text,) if text else ()
    tags = list(_tags(text, mode, _WHOLE.union(whole)))
    pairs = _paired(tags)
    parts: list[str | Code] = []
    place = 0
    for number, tag in enumerate(tags):
        pair = pairs.get(number)
        if not tag.sure and pair is None:
            continue
        if place < tag.start:
            parts.append(text[place : tag.start])
        parts.append(Code(tag.raw, tag.role if pair is not None else Role.ALONE, pair, tag.shown))
        place = tag.end
    return (*parts, text[place:]) if text[place:] else tuple(parts)


def breaks_line(code: Code) -> bool:
    """Whether the text after a code is another line: a paragraph, a list item, a cell."""
    named = _NAME.match(code.raw)
    return named is not None and (named[1].lower() in _BREAKING or _LINE_BREAK.search(code.raw) is not None)


def is_formatting(code: Code) -> bool:
    """Whether a code is known to replace no word: a picture, a mark in the text, a comment."""
    named = _NAME.match(code.raw)
    return code.raw.startswith("<!") or (named is not None and named[1].lower() in _HTML | {"mrk", "bpt", "ept"})


def _tags(text: str, mode: Tags, whole_elements: Collection[str]) -> Iterator[_Tag]:
    place = 0
    unclosed: set[str] = set()  # names are searched for once: if no end follows, none follows later
    while match := _TAG.search(text, place):
        start, end = match.span()
        place = end
        if match["comment"]:
            if match.group() == _COMMENT:
                closed = -1 if _COMMENT in unclosed else text.find("-->", end)
                if closed < 0:
                    unclosed.add(_COMMENT)
                    continue
                place = end = closed + len("-->")
            yield _Tag(start, end, text[start:end], Role.ALONE, ("", ""), sure=True)
            continue
        way = "1" if match["name1"] else "2"
        name, attributes = match[f"name{way}"].lower(), match[f"attributes{way}"]
        closes, alone = bool(match[f"slash{way}"]), bool(match[f"self{way}"])
        shown = ""
        sure = mode == "xml" or alone or name in (_HTML if mode == "html" else _HTML | _EXCHANGE)
        if not closes and not alone:
            # The content of such an element is code. If any element is empty, its two tags are one code.
            is_whole = name in whole_elements or _STAYS.search(attributes) is not None
            inner = "(.*?)" if is_whole else "()"
            slash = "</" if way == "1" else "&lt;/"
            closing = re.compile(rf"{inner}{slash}{re.escape(name)}\s*(?:>|&gt;)", re.IGNORECASE | re.DOTALL)
            if f"{slash}{name}" in unclosed:
                pass
            elif whole := closing.match(text, end):
                place = end = whole.end()
                shown = whole[1] if [whole[1]] == [each.text for each in find(whole[1])] else ""
                alone = sure = True
            elif is_whole:
                unclosed.add(f"{slash}{name}")
        role = Role.CLOSING if closes else Role.ALONE if alone or name in _VOID else Role.OPENING
        key = name, ""
        if role is Role.ALONE and name in _HALVES:
            named = next((found[1] for key_of in _KEYS if (found := key_of.search(attributes))), "")
            role, key = _HALVES[name], ("halves", named)
        yield _Tag(start, end, text[start:end], role, key, sure, shown)


def _paired(tags: list[_Tag]) -> dict[int, int]:
    """The numbers of pairs, by tag; tags that cross a pair that closes before them have none."""
    open_: list[int] = []
    waiting: Counter[tuple[str, str]] = Counter()  # the number of open tags, by key
    pairs: dict[int, int] = {}
    for number, tag in enumerate(tags):
        if tag.role is Role.OPENING:
            open_.append(number)
            waiting[tag.key] += 1
        elif tag.role is Role.CLOSING and waiting[tag.key]:
            key = None
            while key != tag.key:
                key = tags[other := open_.pop()].key
                waiting[key] -= 1
            pairs[other] = pairs[number] = len(pairs) // 2 + 1
    return pairs
