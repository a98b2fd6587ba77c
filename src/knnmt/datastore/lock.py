"""One writer at a time. The system releases the lock when its holder dies."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from knnmt.datastore.publication import storage_errors
from knnmt.errors import DatastoreLockedError
from knnmt.output_files import take_lock
from knnmt.regular_files import open_descriptor

Result = TypeVar("Result")


@contextmanager
def writer_lock(directory: Path, moves: bool = False) -> Iterator[None]:
    """Hold the writer's lock of a store; if another process holds it, raise an error that names that process.

    moves: the directory is renamed under the lock. Windows does not allow that while a file in it is open, so there the
        lock is beside the directory while it is held.
    """
    beside = moves and sys.platform == "win32"
    path = directory.with_name(f"{directory.name}.lock") if beside else directory / "lock"
    with storage_errors(path):
        descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            take_lock(descriptor)
        except BlockingIOError as error:
            raise DatastoreLockedError(
                f"{directory}: another process is writing to it: {_said(descriptor) or 'it did not say who it is'}. "
                "Wait until it is done, or stop it; readers are not affected."
            ) from error
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise DatastoreLockedError(f"{directory}: another process has just finished writing to it. Look again.")
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:300]
        _say(descriptor, f"process {os.getpid()} on {socket.gethostname()} ({command})\n")
        yield
        _say(descriptor, "")
    finally:
        os.close(descriptor)
        if beside:
            with suppress(OSError):  # the next holder has already taken it
                path.unlink()


def while_unlocked(write: Callable[[], Result], seconds: float, pause: float = 0.05) -> Result:
    """Write; if another process holds the lock, try again for a while."""
    until = time.monotonic() + seconds
    while True:
        try:
            return write()
        except DatastoreLockedError:
            if time.monotonic() > until:
                raise
            time.sleep(pause)


def _said(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 1000).decode("utf-8", errors="replace").strip()


def _say(descriptor: int, holder: str) -> None:
    with suppress(OSError):  # the lock holds even if the disk is full
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, holder.encode("utf-8", "backslashreplace"))
