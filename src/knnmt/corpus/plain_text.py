"""Recognises files that are not plain text: documents whose mark-up must not be translated, and files without text.

The content decides, then the name. Lines of such a file are not segments.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from knnmt.corpus.detection import XML_STARTS, begins_like_po
from knnmt.corpus.languages import plain_name
from knnmt.corpus.prolog import read_prolog
from knnmt.errors import InputError

MEMORIES = "TMX, XLIFF, SDLXLIFF, PO, TSV, CSV, and pairs of text files; also compressed with gzip, xz or zstd"

ZIP = b"PK\x03\x04"
OFFICE = "an Office document"  # newer ones are zip archives
_BINARY = {  # by their first bytes
    b"\x89PNG\r\n": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF-": "a PDF document",
    ZIP: "a zip archive",
    b"\xd0\xcf\x11\xe0": "an older Office document",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x7fELF": "a program",
    b"\xde\x12\x04\x95": "a compiled catalog (MO)",
    b"\x95\x04\x12\xde": "a compiled catalog (MO)",
    b"BZh": "a bzip2 archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
}
_CONTROLS = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"}) + b"\x7f"
_MAX_CONTROLS = 0.01  # part of the first bytes; text may have one by accident
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_ROOTS = {"tmx": "a TMX memory", "xliff": "an XLIFF file", "html": "an HTML page", "TS": "a Qt catalog"}
_CONTENT = {
    "an HTML page": re.compile(rb"\A(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+)?html\b", re.IGNORECASE),
    "an XML file": re.compile(rb"(?:\xef\xbb\xbf)?<\?xml\s"),
    "a JSON file": re.compile(rb'\A(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"[^"\n]*"\s*:'),
    "a file of subtitles": re.compile(rb"\A(?:\xef\xbb\xbf)?(?:WEBVTT\b|\s*\d+\r?\n\d+:\d\d:\d\d,\d{3} --> )"),
    "an RTF document": re.compile(rb"\{\\rtf"),
}
_ENDINGS = {
    "a PO catalog": ".po .pot",
    "a TMX memory": ".tmx",
    "an XLIFF file": ".xlf .xliff .sdlxliff .mqxliff .mxliff .txlf",
    "a table of columns": ".tsv .tab .csv",
    "a Qt catalog": ".ts",
    "an HTML page": ".html .htm .xhtml",
    "an XML file": ".xml .resx .resw .svg .dita",
    "a JSON file": ".json .jsonl .arb .xcstrings",
    "a YAML file": ".yaml .yml",
    "a file of strings": ".strings .stringsdict .properties",
    "a file of subtitles": ".srt .vtt .ass .ssa",
    OFFICE: ".docx .xlsx .pptx .odt .ods .odp .doc .xls .ppt",
    "an RTF document": ".rtf",
    "a PDF document": ".pdf",
}
_BY_ENDING = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings.split()}


def binary_kind(head: bytes) -> str | None:
    """The kind of a file without text, from its first bytes; None for text in any encoding that is marked."""
    for magic, kind in _BINARY.items():
        if head.startswith(magic):
            return kind
    if head.startswith((*_BYTE_ORDER_MARKS, *XML_STARTS)):
        return None
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return "a file of binary data" if controls > _MAX_CONTROLS * len(head) and not _is_utf8(head) else None


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def document_kind(path: Path | None, head: bytes) -> str | None:
    """The kind of a file whose lines are not plain text, from its first bytes and, if it has one, its name."""
    if kind := binary_kind(head):
        return kind
    if head.startswith(XML_STARTS) and (kind := _ROOTS.get(read_prolog(head).root or "")):
        return kind
    if begins_like_po(head):
        return "a PO catalog"
    for kind, pattern in _CONTENT.items():
        if pattern.match(head):
            return kind
    return None if path is None else _BY_ENDING.get(plain_name(path).suffix.lower())


def require_text(path: Path, head: bytes) -> None:
    """Refuse a memory without text, whatever its stated format is."""
    if kind := binary_kind(head):
        raise InputError(f"{path}: expected a translation memory, found {kind}. Memories are {MEMORIES}")


def require_plain_text(path: Path | None, head: bytes, plain: bool = False) -> None:
    """Refuse a document, because its mark-up would be translated; with `plain`, refuse only files without text."""
    if kind := binary_kind(head) if plain else document_kind(path, head):
        raise InputError(
            f"{path or 'standard input'}: expected plain text, one segment per line, found {kind}, whose lines are not "
            f"segments. {_advice(kind)}"
        )


def _advice(kind: str) -> str:
    if kind == _BY_ENDING[".tsv"]:
        return (
            "Take the column with the text first, for example with: cut -f 1. "
            "If its lines are segments, use `knnmt translate --plain`"
        )
    if kind in _ENDINGS:
        return (
            "Save its text alone, one segment per line; or use `knnmt translate --plain`, which treats every line "
            "as text"
        )
    return "Save its text alone, one segment per line, in UTF-8"
