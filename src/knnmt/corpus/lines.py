"""Lines of UTF-8 text, streamed, with the place named when a byte is wrong."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path

from knnmt.errors import InputError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode_lines(raw: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines without their ends. Only a line feed (or carriage return with line feed) ends a line."""
    for number, line in enumerate(raw, start=1):
        if number == 1:
            if line.startswith(_UTF16):
                raise InputError(f"{name}: expected UTF-8, found UTF-16. Convert it first: iconv -f UTF-16 -t UTF-8")
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: expected UTF-8, found byte 0x{error.object[error.start]:02x} at column "
                f"{error.start + 1}. Convert the file first, for example: iconv -f LATIN1 -t UTF-8"
            ) from error
        yield text.removesuffix("\n").removesuffix("\r")


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a file."""
    try:
        with path.open("rb") as raw:
            yield from decode_lines(raw, str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: expected a text file, found a directory") from error
    except PermissionError as error:
        raise InputError(f"{path}: no permission to read it") from error
