"""Streams lines of UTF-8 text; an error about a wrong byte names its place."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from knnmt.corpus.opening import open_stream
from knnmt.corpus.plain_text import require_plain_text
from knnmt.corpus.report import UnitError
from knnmt.errors import InputError

MAX_LINE_BYTES = 1 << 24  # a small archive can hold a line that does not fit into memory
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a file. A line that is too long always stops the reading."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{name}, line {number}: expected lines of text, found one of more than {MAX_LINE_BYTES >> 20} MiB. "
                "Is it text, and do its lines end with line feeds?"
            )
        yield line


def refuse_utf16(head: bytes, name: str) -> None:
    """Raise `InputError` when a file begins with the mark of UTF-16."""
    if head.startswith(_UTF16):
        raise InputError(f"{name}: expected UTF-8, found UTF-16. Convert it first: iconv -f UTF-16 -t UTF-8")


def decode_line(line: bytes, number: int) -> str:
    """The text of a line, including its end; a byte order mark before the first line is dropped."""
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnitError(
            f"expected UTF-8, found byte 0x{error.object[error.start]:02x} at column {error.start + 1}. "
            "Convert the file first, for example: iconv -f LATIN1 -t UTF-8"
        ) from error


def without_end(line: str) -> str:
    """A line without its final line feed, or carriage return with line feed."""
    return line.removesuffix("\n").removesuffix("\r")


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines without their ends. Only a line feed (or carriage return with line feed) ends a line."""
    for number, line in enumerate(raw_lines(stream, name), start=1):
        if number == 1:
            refuse_utf16(line, name)
        try:
            text = decode_line(line, number)
        except UnitError as error:
            raise InputError(f"{name}, line {number}: {error}") from error
        yield without_end(text)


def read_lines(path: Path, plain: bool = False) -> Iterator[str]:
    """Lines of a file, which may be compressed with gzip, xz or zstd; documents are refused unless read as `plain`."""
    with open_stream(path) as raw:
        require_plain_text(path, raw.peek(), plain)
        yield from decode_lines(raw, str(path))
