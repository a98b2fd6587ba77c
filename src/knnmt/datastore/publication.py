"""Files that appear completely or not at all, clearing files by name, and clear messages about storage problems."""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from knnmt import output_files
from knnmt.errors import DatastoreDamagedError, StorageError
from knnmt.output_files import put_in_place
from knnmt.regular_files import new_file_mode

_ABANDONED_SECONDS = 3600.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


SCRATCH = r"\.\d+(-[0-9a-f]{8})?"  # a file's name begins with a dot and ends in this until the file is complete


@contextmanager
def storage_errors(place: Path, published: bool = False) -> Iterator[None]:
    """Turn the system's errors about a full or read-only disk into ours; published: the change has taken effect."""
    try:
        yield
    except OSError as error:
        advice = "make room" if error.errno in _FULL else "solve the problem, or choose another place"
        again = "and rerun the command (a build resumes)"
        holds = f"Published files are unchanged; {advice}, {again}."
        if published:
            holds = "The change was made: do not rerun the command. The next change removes leftovers."
        raise StorageError(f"{place}: cannot be written: {error.strerror or error}. {holds}") from error


def sync_directory(directory: Path) -> None:
    """Make renames in a directory survive a power failure. Windows does this itself."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            output_files.sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(
            f"{directory}: the change was written, but the system cannot guarantee that it survives a power "
            f"failure: {error.strerror or error}. Check the disk and the store before you rerun the command."
        ) from error


def publish_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place in one step."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with storage_errors(path):
        try:
            # It must be new: a link there would lead the writer to another file.
            with open(scratch, "xb", opener=_as_private_as_its_directory) as file:
                write(file)
                file.flush()
                output_files.sync(file.fileno())
            put_in_place(scratch, path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    sync_directory(path.parent)


def _as_private_as_its_directory(path: str, flags: int) -> int:
    return os.open(path, flags, new_file_mode(path))


def require_directory(directory: Path) -> None:
    """Raise an error for a link in place of a directory: it could lead anywhere."""
    if directory.is_symlink():
        raise DatastoreDamagedError(
            f"{directory}: expected a directory, found a link. Replace the link with its target."
        )


def clear_files(directory: Path, ours: re.Pattern[str], named: Collection[str] = (), published: bool = False) -> None:
    """Remove the files of a directory whose names match the expression `ours` and are not in `named`.

    Nothing else is touched: no other name, no directory, no target of a link. On Windows a file that a reader has
    mapped stays until the next call.
    """
    require_directory(directory)
    if sys.platform == "win32":
        with storage_errors(directory, published):
            for found in directory.iterdir():
                if found.name not in named and ours.fullmatch(found.name) and not found.is_dir():
                    with suppress(PermissionError):
                        found.unlink(missing_ok=True)
        return
    with storage_errors(directory, published):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(descriptor) as found:
                names = [each.name for each in found if not each.is_dir(follow_symlinks=False)]
            for name in names:
                if name not in named and ours.fullmatch(name):
                    os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)


def clear_scratch(path: Path) -> None:
    """Remove scratch files of `path` that killed writers left; those of running writers stay."""
    with suppress(OSError):
        for found in path.parent.iterdir():
            writer = re.fullmatch(rf"\.{re.escape(path.name)}\.(\d+)(-[0-9a-f]{{8}})?", found.name)
            if writer and not _lives(int(writer[1]), found):
                found.unlink(missing_ok=True)


def _lives(process: int, scratch: Path) -> bool:
    if sys.platform == "win32":  # the check would end the process there; no write of one file takes so long
        return time.time() - scratch.stat().st_mtime < _ABANDONED_SECONDS
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # a process of another user
        return True
    return True
