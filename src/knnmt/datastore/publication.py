"""Files that appear whole or not at all, and storage trouble said in words."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from knnmt.errors import StorageError

_STORAGE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn the system's word on a full or unwilling disk into ours."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRORS:
            raise
        raise StorageError(
            f"{place}: cannot be written: {error.strerror}. Everything finished before is kept; "
            "make room (or mend the permissions) and run the same command again: it continues."
        ) from error


def sync_directory(directory: Path) -> None:
    """Make renames in a directory last through a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place in one step."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with storage_errors(path):
        try:
            with scratch.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
