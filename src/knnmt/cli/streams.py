"""Standard output and error of a command: control characters are made visible, and lost output is noticed.

Text of memories reaches the terminal in many ways: origins, error messages, warnings. All of it passes through here.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, TextIO, cast

from knnmt.corpus.visible import visible_lines


class OutputLost(Exception):  # noqa: N818 - a reader that went away is no error
    """Standard output can no longer be written. It is not an OSError, which would look like an error of a file."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.reader_left = isinstance(error, BrokenPipeError)


@contextmanager
def noticing_loss() -> Iterator[None]:
    """For code that only writes to standard output: an error in it is an error of the output."""
    try:
        yield
    except OSError as error:
        raise OutputLost(error) from error


class _Guarded(io.TextIOWrapper):
    """A standard stream that passes on nothing that acts on a terminal.

    unguarded: the same stream, for drawing and for data to other programs
    """

    def __init__(self, stream: io.TextIOWrapper, may_be_lost: bool) -> None:
        # An ASCII encoding is never a choice; click would also write UTF-8, bypassing this stream.
        encoding = "utf-8" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
        super().__init__(
            cast("IO[bytes]", stream.buffer),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=True,
        )
        self.unguarded = stream
        self._may_be_lost = may_be_lost

    def write(self, text: str, /) -> int:
        shown = visible_lines(text)
        with self._noticing():
            super().write(shown)
        return len(text)

    def flush(self) -> None:
        with self._noticing():
            super().flush()

    def _noticing(self) -> AbstractContextManager[None]:
        return suppress(OSError) if self._may_be_lost else noticing_loss()


def guard_streams() -> None:
    """Guard both streams. Streams that the caller closed are opened again, and fail when used."""
    # Without them, the next opened file would become standard output.
    for number, name, unusable in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            _nothing(number, unusable)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for name, may_be_lost in (("stdout", False), ("stderr", True)):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            setattr(sys, name, _Guarded(stream, may_be_lost))


def unguarded(stream: TextIO) -> TextIO:
    """The original standard stream, for drawing on a terminal and for data."""
    return getattr(stream, "unguarded", stream)


def flush_output() -> None:
    """Write the rest of standard output. If it cannot be written, it is dropped and `OutputLost` is raised."""
    try:
        with noticing_loss():
            sys.stdout.flush()
            unguarded(sys.stdout).flush()
    except OutputLost:
        _nothing(sys.stdout.fileno(), os.O_WRONLY)  # or the interpreter would try again and print an error
        raise


def _nothing(number: int, flags: int) -> None:
    """Let a descriptor lead nowhere."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
