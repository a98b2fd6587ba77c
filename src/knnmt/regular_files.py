"""Reads files that someone else may have made: only regular ones, and only after checking their size.

A device or a pipe in place of a file would be read without end, and a link could lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

# Opening a pipe would wait for its writer. Windows has no pipes among its files, but would translate line ends.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows lacks it: there, links are checked first
MAX_BYTES = 1 << 28  # of a file that is read as a whole, by default


def open_regular(path: Path, links: bool = False) -> BufferedReader:
    """Open a regular file for reading; OSError if it is something else.

    links: follow a link, because caches of downloaded models have them; otherwise a link is an error
    """
    descriptor = open_descriptor(path, os.O_RDONLY, links)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def open_descriptor(path: Path, flags: int, links: bool = False) -> int:
    """Open a path without waiting; OSError if it is a link, unless links are followed."""
    is_link = OSError(errno.ELOOP, "it is a link, but must be a file")
    if not links and not _NO_LINKS and path.is_symlink():
        raise is_link
    try:
        return os.open(path, flags | _FLAGS if links else flags | _FLAGS | _NO_LINKS, new_file_mode(path))
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise is_link from error
        raise


def new_file_mode(path: str | Path) -> int:
    """The permissions of a new file, less those that the process forbids: a file in a private directory is private."""
    return 0o666 if Path(path).parent.stat().st_mode & 0o077 else 0o600


def read_regular(path: Path, most_bytes: int = MAX_BYTES, links: bool = False) -> bytes:
    """The content of a regular file; OSError if it is something else, or larger than `most_bytes`."""
    with open_regular(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes; at most {most_bytes:,} are allowed")
        return file.read(most_bytes)
