"""Messages of a PO catalog that are identifiers, as in Plone: their text is in a comment, `Default: "…"`."""

from __future__ import annotations

import re
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z0-9]+(?:[_.:/-]+[A-Za-z0-9]+)+_?")
_SURELY_IDENTIFIER = re.compile(r"[a-z0-9]{2,}(?:_+[a-z0-9]{2,})+")  # no word of a language, no accelerator (Sav_e)
_DEFAULT = re.compile(r"\s*Default\s*:(.*)")
_NEXT_STRING = re.compile(r'(?<!\\)"[^\S\n]*\n\s*"')
_ESCAPED = re.compile(r"\\(.)")


def message_text(entry: Any) -> str | None:
    """The text of an entry's message; None for an identifier whose text is not in the catalog."""
    message: str = entry.msgid
    if not _IDENTIFIER.fullmatch(message):
        return message
    if text := _default(entry.comment) or _default(entry.tcomment):
        return text
    # A translator keeps an underscore unless it belongs to an identifier.
    return None if _SURELY_IDENTIFIER.fullmatch(message) and "_" not in entry.msgstr else message


def _default(comment: str) -> str:
    """The text that a comment gives as the default: a string on one line or on several, or several strings."""
    lines = comment.split("\n")
    for number, line in enumerate(lines):
        if found := _DEFAULT.fullmatch(line):
            text = found[1].strip()
            if not text.startswith('"'):
                return text
            strings = [text[1:]]
            for further in map(str.strip, lines[number + 1 :]):
                if _closes(strings[-1]) and not further.startswith('"'):
                    break
                strings.append(further)
            joined = " ".join(part.strip() for part in _NEXT_STRING.sub("", "\n".join(strings)).split("\n"))
            inside = joined[:-1] if _closes(joined) else joined
            return _ESCAPED.sub(lambda each: {"n": "\n", "t": "\t"}.get(each[1], each[1]), inside).strip()
    return ""


def _closes(line: str) -> bool:
    """Whether a line ends with a quote that no backslash escapes."""
    inside = line[:-1]
    return line.endswith('"') and (len(inside) - len(inside.rstrip("\\"))) % 2 == 0
