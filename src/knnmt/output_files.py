"""Writes the files that users name: the old file stays whole until the new one is complete.

A file is written beside its place, under a name of its own, and renamed at the end. Whoever writes it holds a lock that
the system releases when the process dies, so that two commands never write the same file together.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from knnmt.errors import StorageError
from knnmt.regular_files import open_descriptor

UNFINISHED = ".unfinished"  # what the name of a file ends in until it is complete
_IN_USE_SECONDS = 2.0  # how long Windows may refuse to replace a file that somebody reads
_STREAM = re.compile(r"/dev/(?:stdout|stderr|fd/\d+)|/proc/(?:self|\d+)/fd/\d+")

if sys.platform == "win32":
    import msvcrt

    _BEYOND = 1 << 30  # beyond the file's content: on Windows nobody else can read a locked byte

    def take_lock(descriptor: int) -> None:
        """Lock an open file until it is closed; BlockingIOError if somebody else holds the lock."""
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, "locked") from error
else:
    import fcntl

    def take_lock(descriptor: int) -> None:
        """Lock an open file until it is closed; BlockingIOError if somebody else holds the lock."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync(descriptor: int) -> None:
    """Wait until the disk has what was written to a file, so that a power failure does not take it."""
    os.fsync(descriptor)


@contextmanager
def replacing(path: Path, keep_unfinished: bool = False) -> Iterator[BinaryIO]:
    """A file to write that replaces `path` in one step when the block ends.

    If the block fails, or the process is killed, an old file stays as it was. A link stays: its target is replaced. The
    new file has the permissions of the old one, and its owner where the system allows that. Pipes, devices and the
    streams of a process (`/dev/stdout`) are written directly.

    Args:
        path: the file that the user names.
        keep_unfinished: leave what was written beside `path` if the block fails, for work that took long.
    """
    try:
        old = _status(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise StorageError(f"{path}: expected the name of a file, found a directory. Choose another name")
    if _STREAM.fullmatch(str(path)) or (old is not None and not stat.S_ISREG(old.st_mode)):
        with _appended(path) as file:
            yield file
        return
    if old is not None and not os.access(path, os.W_OK):
        raise StorageError(f"{path}: cannot be written: it is read-only. Choose another name, or allow writing to it")
    place = Path(os.path.realpath(path))
    unfinished = unfinished_path(place)
    try:
        descriptor = open_locked(unfinished)
    except BlockingIOError as error:
        raise in_use(path) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    file = os.fdopen(descriptor, "wb")
    try:
        with _errors_of(path):
            os.ftruncate(descriptor, 0)
            if old is not None and sys.platform != "win32":
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))  # before there is anything to read
            yield file
            file.flush()
            if old is not None and sys.platform != "win32":
                with suppress(OSError):  # only the administrator may give files away
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            sync(descriptor)
            if sys.platform == "win32":  # which renames no open file; elsewhere the lock is held until the end
                file.close()
            put_in_place(unfinished, place)
    except BaseException:
        with suppress(OSError):  # a full disk fails again; the first error counts
            file.flush()
        with suppress(OSError):
            if not keep_unfinished or unfinished.stat().st_size == 0:
                unfinished.unlink()
        raise
    finally:
        with suppress(OSError):
            file.close()


def write_output(path: Path, content: bytes) -> None:
    """Write a whole file that the user names; an old file is replaced in one step, or stays."""
    with replacing(path) as file:
        file.write(content)


def unfinished_path(place: Path) -> Path:
    """Where a file is until it is complete."""
    return place.with_name(place.name + UNFINISHED)


def in_use(path: Path) -> StorageError:
    """The error for a file that another command writes."""
    return StorageError(f"{path}: another command is writing this file. Wait until it is done, or choose another name")


def open_locked(path: Path) -> int:
    """Open a file for reading and writing under a lock, and create it if necessary; its content stays.

    BlockingIOError means that another writer holds the lock. A link, a device or the file of another user is an
    OSError: somebody could have put it there to get at what is written.
    """
    while True:
        descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            take_lock(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            found = os.fstat(descriptor)
            _require_own(path, found)
            with suppress(FileNotFoundError):
                if os.path.samestat(found, path.lstat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the writer that held the lock has renamed or removed the file


def _require_own(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or (sys.platform != "win32" and found.st_uid != os.geteuid()):
        raise PermissionError(errno.EPERM, f"{path} is in the way, which is not a file of yours")


def put_in_place(scratch: Path, path: Path) -> None:
    """Rename a file, replacing the target if it exists.

    Windows does not allow this while the target is open, so this waits a moment for readers.
    """
    until = time.monotonic() + _IN_USE_SECONDS
    while True:
        try:
            scratch.replace(path)
            return
        except PermissionError:
            if sys.platform == "win32" and time.monotonic() < until:
                time.sleep(0.02)
            else:
                raise


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


@contextmanager
def _appended(path: Path) -> Iterator[BinaryIO]:
    """A stream or a device. What other commands have written to the same file stays before it."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with _errors_of(path):
            yield file
            file.flush()
    finally:
        with suppress(OSError):  # a reader that left, or a full disk, fails again; the first error counts
            file.close()


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path}: cannot be written: {error.strerror or error}. Make room, or choose another place")
