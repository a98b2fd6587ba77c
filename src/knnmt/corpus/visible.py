"""Makes text of a memory safe to show: control characters are written out.

A terminal obeys control characters: a segment could set the title of the window, fill the clipboard, or overwrite
earlier output. Marks that change the writing direction make one text look like another.
"""

from __future__ import annotations

import re

# Controls (C0, DEL, C1); characters that end a line or turn its direction; lone surrogates, which UTF-8 lacks.
_ACTING = "\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_ACTING}]")
_IN_LINES = re.compile(f"(?![\t\n])[{_ACTING}]")
_PICTURES = {"\n": "↵", "\t": "⇥", "\x7f": "␡"}


def visible(text: str) -> str:
    """A text of a memory, a name or a path with all such characters written out, including line ends."""
    return _IN_TEXT.sub(_written_out, text)


def visible_lines(text: str) -> str:
    """Lines of our own output, which keep their ends and tabs."""
    return _IN_LINES.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    character = found.group()
    if character in _PICTURES:
        return _PICTURES[character]
    # Unicode has pictures of the first 32.
    return chr(0x2400 + ord(character)) if character < " " else f"\\u{ord(character):04x}"
