"""Reading files that someone else may have made: regular ones only, of a size that is looked at first.

A device or a pipe in the place of a file would be read without end, and a link could lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

# Opening a pipe would wait for whoever writes into it. Windows has none among its files, but would translate line ends.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # which Windows has not: there a link is looked for first
MAX_BYTES = 1 << 28  # of a file that is read whole, unless told otherwise


def open_regular(path: Path, links: bool = False) -> BufferedReader:
    """A regular file, open for reading; an OSError where something else is there.

    links: follow a link, as the caches of downloaded models have them; else a link is refused
    """
    descriptor = open_descriptor(path, os.O_RDONLY, links)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def open_descriptor(path: Path, flags: int, links: bool = False) -> int:
    """What is at `path`, open without waiting; an OSError where it is a link, unless links are followed."""
    is_link = OSError(errno.ELOOP, "it is a link, and a file must be here")
    if not links and not _NO_LINKS and path.is_symlink():
        raise is_link
    try:
        return os.open(path, flags | _FLAGS if links else flags | _FLAGS | _NO_LINKS, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise is_link from error
        raise


def read_regular(path: Path, most_bytes: int = MAX_BYTES, links: bool = False) -> bytes:
    """A regular file's content; an OSError where something else is there, or more than `most_bytes`."""
    with open_regular(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most_bytes:,} are read")
        return file.read(most_bytes)
