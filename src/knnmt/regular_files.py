"""Reading files that someone else may have made: regular ones only, of a size that is looked at first.

A device or a pipe in the place of a file would be read without end, and a link could lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MAX_BYTES = 1 << 28  # of a file that is read whole, unless told otherwise


def open_regular(path: Path, links: bool = False) -> BufferedReader:
    """A regular file, open for reading; an OSError where something else is there.

    links: follow a link, as the caches of downloaded models have them; else a link is refused
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for whoever writes into it
    try:
        descriptor = os.open(path, flags if links else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, and a file must be here") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int = MAX_BYTES, links: bool = False) -> bytes:
    """A regular file's content; an OSError where something else is there, or more than `most_bytes`."""
    with open_regular(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and {most_bytes:,} are the most that are read")
        return file.read(most_bytes)
