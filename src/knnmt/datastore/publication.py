"""Files that appear whole or not at all, and storage trouble said in words."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from knnmt.errors import StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn the system's word on a full or unwilling disk into ours."""
    try:
        yield
    except OSError as error:
        advice = "make room" if error.errno in _FULL else "mend that, or choose another place"
        raise StorageError(
            f"{place}: cannot be written: {error.strerror or error}. Nothing published is touched; {advice}, "
            "and run the same command again (a build goes on from what is done)."
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
