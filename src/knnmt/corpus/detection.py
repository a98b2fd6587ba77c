"""Detects the format of a file: by its content, then by its name."""

from __future__ import annotations

import re
from pathlib import Path

from knnmt.corpus.languages import plain_name
from knnmt.corpus.prolog import read_prolog

_ROOTS = {"tmx": "tmx", "xliff": "xliff"}
_NAMES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".po": "po",
    ".pot": "po",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".sdlxliff": "xliff",
}
_MESSAGE = re.compile(rb'(?:\xef\xbb\xbf)?\s*+(?:#[^\n]*+\n\s*+)*+(?:msgctxt\s+"[^\n]*\n\s*)?msgid\s+"')
_A_MESSAGE = re.compile(rb'^msgid\s+"', re.MULTILINE)
XML_STARTS = (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<\x00", b"\xfe\xff\x00<", b"<\x00", b"\x00<")


def detect_format(path: Path, head: bytes) -> str:
    """One of `FORMATS`, from the path and the first bytes, decompressed, of a file.

    The root element identifies XML and the first message PO, whatever the name. Then a known ending of the name
    decides. Otherwise, a tab in the first line means TSV, and anything else is plain text.
    """
    if head.startswith(XML_STARTS) and (root := read_prolog(head).root) in _ROOTS:
        return _ROOTS[root]
    if begins_like_po(head):
        return "po"
    if named := _NAMES.get(plain_name(path).suffix.lower()):
        return named
    if _A_MESSAGE.search(head):
        return "po"
    return "tsv" if b"\t" in head.partition(b"\n")[0] else "text"


def begins_like_po(head: bytes) -> bool:
    """Whether a file, after its comments, begins with a message of a PO catalog."""
    return _MESSAGE.match(head) is not None
