"""One writer at a time. The system itself gives the lock back when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from knnmt.datastore.publication import storage_errors
from knnmt.errors import DatastoreLockedError

_LOOKING_SECONDS = 0.02  # whoever asks `is_held` has the lock for less


@contextmanager
def writer_lock(directory: Path) -> Iterator[None]:
    """Hold the writer's lock of a store, or say who does."""
    path = directory / "lock"
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        try:
            _take(descriptor)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 1000, 0).decode("utf-8", errors="replace").strip()
            raise DatastoreLockedError(
                f"{directory}: another process is writing to it: {holder or 'it did not say who it is'}. "
                "Wait until it is done, or stop it; readers are not affected."
            ) from error
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise DatastoreLockedError(f"{directory}: another process has just finished writing to it. Look again.")
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:300]
        holder = f"process {os.getpid()} on {socket.gethostname()} ({command})\n"
        with suppress(OSError):  # on a full disk the lock holds all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode("utf-8", "backslashreplace"), 0)
        yield
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Whether somebody holds the writer's lock of a directory now."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_LOOKING_SECONDS)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
