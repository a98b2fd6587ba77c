"""JSON of interface strings: i18next and the like, ARB of Flutter, messages of browser extensions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from knnmt.documents.content import Content
from knnmt.documents.document import Replacing, Unit, short_id
from knnmt.errors import MalformedDocumentError
from knnmt.protection.marked import Marked, written

_MAX_DEPTH = 100
_TOKEN = re.compile(r"[\s:,]*([{}\[\]\"]|[^\s:,{}\[\]\"]+)")
_DECODER = json.JSONDecoder()
_Path = tuple[str | int, ...]


class JsonStrings(Replacing):
    """Every string that is a value; in browser extensions the messages, in ARB those that do not describe another."""

    format = "json"

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name)
        try:
            whole = json.loads(content.text[content.start :])
        except (ValueError, RecursionError) as error:
            raise MalformedDocumentError(f"{name}: expected JSON, found: {error}") from error
        # If other scripts are written as escapes, translations are, too.
        self._as_escapes = content.text.isascii() and "\\u" in content.text
        language = whole.get("@@locale") if isinstance(whole, dict) else None
        super().__init__(content, _found(content, whole), (language if isinstance(language, str) else None, None))

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return json.dumps(written(target), ensure_ascii=self._as_escapes)


def _found(content: Content, whole: Any) -> Iterator[tuple[Unit, tuple[int, int]]]:
    messages_only = (
        isinstance(whole, dict)
        and len(whole) > 0
        and all(isinstance(each, dict) and isinstance(each.get("message"), str) for each in whole.values())
    )
    for path, text, place in _strings(content):
        if messages_only and (len(path) != 2 or path[1] != "message"):
            continue
        if any(isinstance(key, str) and key.startswith("@") for key in path):
            continue
        name = short_id(".".join(map(str, path)))
        yield Unit(name, (text,) if text else ()), place


def _strings(content: Content) -> Iterator[tuple[_Path, str, tuple[int, int]]]:
    """Strings that are values, with the keys that lead to them. The text is known to be valid JSON."""
    text, place = content.text, content.start
    path: list[str | int] = []  # for each open object or list, the current key or number
    expects_key = False
    while token := _TOKEN.match(text, place):
        mark, start, place = token[1], token.start(1), token.end()
        string = ""
        if mark == '"':
            string, place = _DECODER.raw_decode(text, start)
            if expects_key:
                path[-1], expects_key = short_id(string), False
                continue
            yield tuple(path), string, (start, place)
        elif mark in "{[":
            if len(path) >= _MAX_DEPTH:
                raise MalformedDocumentError(f"{content.name}: expected JSON less than {_MAX_DEPTH} deep, found more")
            path.append("" if mark == "{" else 0)
            expects_key = mark == "{"
            continue
        elif mark in "}]":
            path.pop()
        if path:  # after a value comes the next key or number
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else last
            expects_key = isinstance(last, str)
