"""Tags in plain text: HTML, XML and the inline elements of XLIFF and TMX, distinguished from words.

In the mode "xml", everything that is written like a tag is one. In "html" and "auto" it must be a known element: one of
HTML, or in "auto" of XLIFF or TMX, or it closes itself, or its other half is there. "<Datei>" in the usage of a command
is text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
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


_ATTRIBUTES = r"""(?:\s+[\w:.-]+(?:\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>=`/]+))?)*"""
_INSIDE = rf"(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]*)(?P<attributes>{_ATTRIBUTES})\s*(?P<self>/?)"
_BEGIN = re.compile(r"<|&lt;|\]\]>")
_WHOLE_TAG = re.compile(rf"<!--|<!(?i:doctype)\b[^<>]*>|<\?[A-Za-z][^<>]*\?>|<!\[CDATA\[|\]\]>|<{_INSIDE}>")
_ESCAPED_TAG = re.compile(f"&lt;{_INSIDE}&gt;")
_COMMENT = "<!--"
_BREAK_OF_SUBTITLES = r"\N"  # of SSA and ASS
_AFTER_NAME = re.compile(r"[-+\d.]*+[diouxXeEfgGscpaAbB](?!\w)")  # of a named argument of Ruby, such as %<title>s
_CLOSING = re.compile(r"(</|&lt;/)([A-Za-z][\w:.-]*+)\s*+(?:>|&gt;)")
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
    """Whether the text after a code is another line: a paragraph, a list item, a cell, a line of a subtitle."""
    if code.raw == _BREAK_OF_SUBTITLES:
        return True
    named = _NAME.match(code.raw)
    return named is not None and (named[1].lower() in _BREAKING or _LINE_BREAK.search(code.raw) is not None)


def is_formatting(code: Code) -> bool:
    """Whether a code is known to replace no word: a picture, a mark in the text, a comment."""
    named = _NAME.match(code.raw)
    return code.raw.startswith("<!") or (named is not None and named[1].lower() in _HTML | {"mrk", "bpt", "ept"})


def _tags(text: str, mode: Tags, whole_elements: Collection[str]) -> Iterator[_Tag]:
    place = 0
    closings: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for closing in _CLOSING.finditer(text):
        closings.setdefault((closing[1], closing[2].lower()), []).append(closing.span())
    last_comment = text.rfind("-->")
    for match in _matches(text):
        start, end = match.span()
        if start < place:
            continue
        place = end
        if text[start - 1 : start] == "%" and _AFTER_NAME.match(text, end):
            continue
        if not match["name"]:
            if match.group() == _COMMENT:
                if last_comment < end:
                    continue
                place = end = text.index("-->", end) + len("-->")
            yield _Tag(start, end, text[start:end], Role.ALONE, ("", ""), sure=True)
            continue
        name, attributes = match["name"].lower(), match["attributes"]
        closes, alone = bool(match["slash"]), bool(match["self"])
        shown = ""
        sure = mode == "xml" or alone or name in (_HTML if mode == "html" else _HTML | _EXCHANGE)
        if not closes and not alone:
            # The content of such an element is code. If any element is empty, its two tags are one code.
            is_whole = name in whole_elements or _STAYS.search(attributes) is not None
            same = closings.get(("</" if match[0][0] == "<" else "&lt;/", name), [])
            following = bisect_left(same, (end, end))
            if following < len(same) and (is_whole or same[following][0] == end):
                inner = text[end : same[following][0]]
                place = end = same[following][1]
                shown = inner if [inner] == [each.text for each in find(inner)] else ""
                alone = sure = True
        role = Role.CLOSING if closes else Role.ALONE if alone or name in _VOID else Role.OPENING
        key = name, ""
        if role is Role.ALONE and name in _HALVES:
            named = next((found[1] for key_of in _KEYS if (found := key_of.search(attributes))), "")
            role, key = _HALVES[name], ("halves", named)
        yield _Tag(start, end, text[start:end], role, key, sure, shown)


def _matches(text: str) -> Iterator[re.Match[str]]:
    """What is written like a tag. None reaches beyond the beginning of the next, so that a text is read once."""
    begins = [begin.span() for begin in _BEGIN.finditer(text)]
    following: dict[str, int] = {}
    ends: list[int] = []
    for start, end in reversed(begins):
        ends.append(following.get(text[start:end], len(text)))
        following[text[start:end]] = start
    for (start, _), end in zip(begins, reversed(ends), strict=True):
        if match := _ESCAPED_TAG.match(text, start, end) if text[start] == "&" else _WHOLE_TAG.match(text, start, end):
            yield match


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
