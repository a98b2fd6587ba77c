"""Markdown: headings, paragraphs, list items and table cells, with their mark-up as codes. Code and HTML stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from knnmt.corpus.report import UnitError
from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit
from knnmt.documents.elements import core, joined
from knnmt.errors import MalformedDocumentError, MissingDependencyError
from knnmt.protection.marked import Code, Marked, Role

_MAX_CHARACTERS = 1 << 22
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)")
_TARGET = re.compile(
    r"""\]\(\s*+(?:<[^<>\n]*>|[^\s()<]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)|\]\[[^\]]*\]|\]"""
)
_IMAGE = re.compile(r"!\[(?:[^\[\]]|\[[^\[\]]*\])*")
_HTML = re.compile(r"<(/?)([A-Za-z][\w-]*)(?:\s[^<>]*)?(?<!/)>")
# Text that would start mark-up: it gets a backslash after the group.
_BEGINS_BLOCK = re.compile(r"()(?:>|#{1,6}(?:\s|$)|[-+](?:\s|$)|[-=+]+$)|(\d{1,9})[.)](?:\s|$)")
_SPECIAL = re.compile(r"[\\`*~]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|(?<!^)\[|^\[(?![ xX]\] )")
_NOTE = re.compile(r"\[[\^!][^\[\]\s]+\]:?")  # of a footnote or an alert, which CommonMark treats as text
_Located = tuple[str | Code, int, int]
"""A part with its place."""


class MarkdownPage(Replacing):
    """A page."""

    format = "markdown"

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name)
        super().__init__(content, _found(content))

    def written(self, unit: Unit, target: Marked, /) -> str:
        if self.places[unit.id][0] < 0:
            raise UnitError("expected mark-up that can be located in its line, found other mark-up")
        in_table = unit.context == "table"
        parts = [part.raw if isinstance(part, Code) else _escaped(part, in_table) for part in target]
        text = "".join(parts).strip()
        if begins := _BEGINS_BLOCK.match(text):
            place = max(begins.end(1), begins.end(2))
            return f"{text[:place]}\\{text[place:]}"
        return text


def _escaped(text: str, in_table: bool) -> str:
    text = _SPECIAL.sub(lambda found: f"\\{found[0]}", text).replace("\n", " ")
    return text.replace("|", "\\|") if in_table else text


def _found(content: Content) -> Iterator[tuple[Unit, tuple[int, int]]]:
    starts = [0, *(found.end() for found in re.finditer(r"\n", content.text))]
    lines, place = (0, 0), 0
    in_table = False
    for token in _tokens(content):
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        if token.map:
            lines = tuple(token.map)
            place = max(place, starts[lines[0]])
        if token.type != "inline" or not token.content.strip():
            continue
        end = starts[lines[1]] if lines[1] < len(starts) else len(content.text)
        pieces = _located(content.text, token.content, place, end, in_table)
        parts = _parts(token.children, content.text, pieces, in_table) if pieces else None
        if pieces:
            place = pieces[-1][1]
        yield from _unit(content, token.content, parts, lines[0] + 1, "table" if in_table else "")


def _unit(
    content: Content, text: str, parts: list[_Located] | None, line: int, context: str
) -> Iterator[tuple[Unit, tuple[int, int]]]:
    if parts is None:  # shows when it is written
        yield Unit(f"line {line}", (text,), context=context), (-1, -1)
        return
    parts = list(_with_notes(parts, content.text))
    first, last = core(tuple(part for part, *_ in parts))
    if first == last:
        return
    marked = list(joined([part for part, *_ in parts[first:last]]))
    start, end = parts[first][1], parts[last - 1][2]
    if isinstance(marked[-1], str):
        end -= len(content.text[start:end]) - len(content.text[start:end].rstrip())
        marked[-1] = marked[-1].rstrip()
    if isinstance(marked[0], str):
        start += len(content.text[start:end]) - len(content.text[start:end].lstrip())
        marked[0] = marked[0].lstrip()
    yield Unit(f"line {content.line_number(start)}", tuple(marked), context=context), (start, end)


def _tokens(content: Content) -> list[Any]:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingDependencyError(
            "markdown-it-py", f"reading {content.name}, which is Markdown,", "documents"
        ) from error
    if len(content.text) > _MAX_CHARACTERS:
        raise MalformedDocumentError(f"{content.name}: expected at most {_MAX_CHARACTERS >> 20} MiB of Markdown")
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    text = content.text.replace("\ufeff", " ", 1) if content.start else content.text
    if front := _FRONT.match(content.text):
        text = "\n" * front[0].count("\n") + content.text[front.end() :]
    return parser.parse(text)


def _located(text: str, inline: str, start: int, end: int, in_table: bool) -> list[tuple[int, int]]:
    """The positions of the lines of a block's text; nothing if one of them is not found."""
    pieces, place = [], start
    for line in inline.split("\n"):
        wanted = line.strip().replace("|", "\\|") if in_table else line.strip()
        found = text.find(wanted, place, end)
        if found < 0:
            return []
        pieces.append((found, found + len(wanted)))
        place = found + len(wanted)
    return pieces


def _parts(children: list[Any], text: str, pieces: list[tuple[int, int]], in_table: bool) -> list[_Located] | None:
    """The inline tokens of a block as parts with positions; None if they are not where they should be."""
    parts: list[_Located] = []
    opened: list[tuple[str, int]] = []
    line, place, pairs = 0, pieces[0][0], 0
    in_autolink = False
    for child in children:
        if in_autolink:
            in_autolink = child.type != "link_close"
            continue
        if child.type in ("softbreak", "hardbreak"):
            line += 1
            if line >= len(pieces):
                return None
            end = pieces[line][0]
            parts.append((Code(text[place:end]) if child.type == "hardbreak" else " ", place, end))
            place = end
            continue
        raw = _raw(child, text, place, in_table)
        if raw is None:
            return None
        in_autolink = child.type == "link_open" and child.markup == "autolink"
        name, nesting = _nesting(child, raw)
        part: str | Code = Code(raw, shown=child.content if child.type == "code_inline" else "")
        if child.type in ("text", "text_special"):
            part = child.content
        elif nesting == 1 and not in_autolink:
            pairs += 1
            opened.append((name, pairs))
            part = Code(raw, Role.OPENING, pairs)
        elif nesting == -1:
            is_last = bool(opened) and opened[-1][0] == name
            part = Code(raw, Role.CLOSING, opened.pop()[1] if is_last else None)
        parts.append((part, place, place + len(raw)))
        place += len(raw)
        while line < len(pieces) - 1 and place > pieces[line][1]:  # code may continue in the next line
            line += 1
    return parts


def _with_notes(parts: list[_Located], text: str) -> Iterator[_Located]:
    """The same parts with the marks of notes as codes."""
    for is_plain, group in groupby(parts, key=lambda part: part[0] == text[part[1] : part[2]]):
        located = list(group)
        place, end = located[0][1], located[-1][2]
        for found in _NOTE.finditer(text, place, end) if is_plain else ():
            if place < found.start():
                yield text[place : found.start()], place, found.start()
            yield Code(found[0]), found.start(), found.end()
            place = found.end()
        if not is_plain:
            yield from located
        elif place < end:
            yield text[place:end], place, end


def _nesting(child: Any, raw: str) -> tuple[str, int]:
    """The name of what a token opens (1), closes (-1), or is (0)."""
    if child.type != "html_inline":
        return str(child.tag), int(child.nesting)
    tag = _HTML.fullmatch(raw)
    return (tag[2].lower(), -1 if tag[1] else 1) if tag else ("", 0)


def _raw(child: Any, text: str, place: int, in_table: bool) -> str | None:
    """A token as it is written in the text; None if it is not there."""
    wanted: str | None = None
    if child.type == "text":
        wanted = child.content.replace("|", "\\|") if in_table else child.content
    elif child.type == "html_inline":
        wanted = child.content
    elif child.type == "code_inline":
        closing = re.compile(f"(?<!`){re.escape(child.markup)}(?!`)").search(text, place + len(child.markup))
        return text[place : closing.end()] if closing else None
    elif child.type == "image":
        found = _IMAGE.match(text, place)
        target = _TARGET.match(text, found.end()) if found else None
        return text[place : target.end()] if target else None
    elif child.type == "link_open":
        link = re.compile(r"<[^<>]*>|\[").match(text, place)
        return link[0] if link else None
    elif child.type == "link_close":
        target = _TARGET.match(text, place)
        return target[0] if target else None
    else:
        wanted = child.markup
    return wanted if wanted is not None and text.startswith(wanted, place) else None
