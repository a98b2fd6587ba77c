"""`Scratch`: files that a service needs for a while, in a directory of its own under the system's temporary directory.

The service holds a lock on the directory, which the system releases when the process dies. The next service removes the
directories of the same user whose lock nobody holds, so that a killed service leaves nothing for long.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from threading import Lock

from knnmt.output_files import take_lock

_PREFIX = "knnmt-service-"


class Scratch:
    """A directory that only its owner can read. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._place: Path | None = None
        self._descriptor = -1
        _remove_abandoned(Path(tempfile.gettempdir()))

    @property
    def directory(self) -> Path:
        """The directory, made when it is needed first."""
        with self._lock:
            while self._place is None:
                place = Path(tempfile.mkdtemp(prefix=_PREFIX))
                self._descriptor = _locked(place)
                if self._descriptor >= 0 or sys.platform == "win32":
                    self._place = place
            return self._place

    def file(self, ending: str) -> Path:
        """A name for a new file."""
        return self.directory / f"{secrets.token_hex(8)}{ending}"

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            if self._place is not None:
                shutil.rmtree(self._place, ignore_errors=True)
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._place, self._descriptor = None, -1


def _locked(place: Path) -> int:
    """A descriptor that holds the lock of a directory of this user; -1 if that is impossible.

    Windows has no locks of directories. There, nothing is removed.
    """
    if sys.platform == "win32":
        return -1
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return -1
    try:
        take_lock(descriptor)
        found = os.fstat(descriptor)
        # Another service may have removed a directory that was made, but not yet locked.
        if found.st_uid == os.geteuid() and os.path.samestat(found, place.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return -1


def _remove_abandoned(temporary: Path) -> None:
    for found in temporary.glob(f"{_PREFIX}*"):
        if (descriptor := _locked(found)) >= 0:
            shutil.rmtree(found, ignore_errors=True)
            os.close(descriptor)
