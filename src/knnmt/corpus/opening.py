"""Opens a file for reading, whatever its compression; errors name the file.

Compression is recognised by the first bytes, not by the name.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from knnmt.corpus.plain_text import OFFICE, ZIP, document_kind
from knnmt.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD = 1 << 16


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _NamedStream(io.RawIOBase):
    """Passes on at most `most` bytes, and names the file if they are damaged."""

    def __init__(self, name: str, file: BinaryIO, inner: _Readable, most: int | None) -> None:
        self._name, self._most, self._passed = name, most, 0
        self._file = file
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        try:
            data = self._inner.read(len(view))
        except EOFError as error:
            raise InputError(
                f"{self._name}: the compressed file ends too early. It was cut off; copy or download it again"
            ) from error
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise InputError(f"{self._name}: cannot be read to its end: {error}") from error
        view[: len(data)] = data
        self._passed += len(data)
        if self._most is not None and self._passed > self._most:
            raise InputError(f"{self._name}: has more than {self._most:,} bytes once it is unpacked: split it")
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


_XZ_MEMORY = 1 << 28  # xz -9 needs a quarter of it


class _XzReader:
    """All streams of an xz file, one after the other; unlike the standard library's reader, it needs bounded memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream: lzma.LZMADecompressor | None = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        while True:
            data = b""
            if self._stream is None:
                data, self._rest = self._rest or self._file.read(HEAD), b""
                if not data:
                    return b""
                if not (data := data.lstrip(b"\0")):  # padding between streams
                    continue
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            elif self._stream.needs_input and not (data := self._file.read(HEAD)):
                raise EOFError
            found = self._stream.decompress(data, size)
            if self._stream.eof:
                self._rest, self._stream = self._stream.unused_data, None
            if found:
                return found


_ZSTANDARD_PIECE = 1024  # an expanded piece must fit into memory, and it may expand ten thousand times


class _ZstandardReader:
    """All frames of a zstd file, one after the other; unlike the package's own reader, it notices a cut frame."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingDependencyError("zstandard", f"reading {name}, which zstd compressed,", "formats") from error
        self._file = file
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._fed = False
        self._ready = b""
        self._given = 0

    def read(self, size: int) -> bytes:
        while self._given >= len(self._ready):
            rest = self._frame.unused_data if self._frame.eof else b""
            data = rest or self._file.read(_ZSTANDARD_PIECE)
            if not data:
                if self._fed and not self._frame.eof:
                    raise EOFError
                return b""
            if self._frame.eof:
                self._frame = self._new_frame()
            try:
                self._ready, self._given = self._frame.decompress(data), 0
            except self._error as error:
                raise OSError(str(error)) from error
            self._fed = True
        data = self._ready[self._given : self._given + size]
        self._given += len(data)
        return data


def origin_name(path: Path) -> str:
    """A file's name in origins: its path as given, as text, without the `#` that separates file and unit."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("#", "%23")


def open_stream(path: Path, most: int | None = None) -> io.BufferedReader:
    """The bytes of a file, decompressed if necessary; `peek` shows the first `HEAD` of them.

    most: bytes after decompression; a larger file is refused while it is read
    """
    name = str(path)
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{name}: no such file") from error
    except IsADirectoryError as error:
        raise InputError(f"{name}: expected a file, found a directory. Name the files in it") from error
    except PermissionError as error:
        raise InputError(f"{name}: no permission to read it") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be opened: {error}") from error
    try:
        inner = _decompressed(file, name)
    except BaseException:
        file.close()
        raise
    return io.BufferedReader(_NamedStream(name, file, inner, most), buffer_size=HEAD)


def _decompressed(file: io.BufferedReader, name: str) -> _Readable:
    kinds: dict[bytes, Callable[[], _Readable]] = {
        b"\x1f\x8b": lambda: gzip.GzipFile(fileobj=file),
        b"\xfd7zXZ\x00": lambda: _XzReader(file),
        b"\x28\xb5\x2f\xfd": lambda: _ZstandardReader(file, name),
    }
    try:
        head = file.peek(6)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error}") from error
    if head.startswith(ZIP):
        if document_kind(Path(name), b"") == OFFICE:
            raise InputError(f"{name}: expected a file of text, found {OFFICE}. Save it as text, or as a table (TSV)")
        raise InputError(f"{name}: expected a file of text, found a zip archive. Unpack it and name the files in it")
    return next((kind() for magic, kind in kinds.items() if head.startswith(magic)), file)
