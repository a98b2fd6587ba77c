"""Memory maps of files that another program may cut or overwrite while they are open.

The system ends a process that reads a mapped page beyond the end of its file (SIGBUS). In a guarded map, compiled code
(`guard.cpp`) puts zeros in place of such pages. Before using what was computed from the map, call `require_unchanged`.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np

from knnmt.errors import DatastoreChangedError, quoted

_HERE = Path(__file__).parent


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled functions, or None if they were not built from these sources."""
    try:
        found = ctypes.CDLL(str(_HERE / "knnmt-guard.so"))
        found.knnmt_source.restype = ctypes.c_char_p
        if found.knnmt_source().decode() != hashlib.sha256((_HERE / "guard.cpp").read_bytes()).hexdigest():
            return None
    except (OSError, AttributeError):
        return None
    found.knnmt_guard.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64]
    found.knnmt_changed.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    found.knnmt_unguard.argtypes = [ctypes.c_int32]
    found.knnmt_unguard.restype = None
    return found


class GuardedFile(mmap.mmap):
    """A file's bytes in a memory map that does not end the process if the file is cut."""

    path: Path
    descriptor = -1
    place = -1
    _library: ctypes.CDLL | None = None

    @classmethod
    def map(cls, descriptor: int, path: Path) -> Self | None:
        """Map an open file; None if it cannot be guarded."""
        if (library := _library()) is None:
            return None
        self = cls(descriptor, 0, access=mmap.ACCESS_READ)
        self.path, self._library, self.descriptor = path, library, os.dup(descriptor)
        self.place = library.knnmt_guard(self.descriptor, np.frombuffer(self, np.uint8).ctypes.data, len(self))
        return self if self.place >= 0 else None

    def __del__(self) -> None:
        if self._library is not None and self.place >= 0:
            self._library.knnmt_unguard(self.place)
        if self.descriptor >= 0:
            os.close(self.descriptor)


def changed_file(files: Sequence[GuardedFile]) -> GuardedFile | None:
    """The first of some files that was cut or written to since it was mapped, or could not be read, if there is one."""
    if not files or (library := _library()) is None:
        return None
    places = (ctypes.c_int32 * len(files))(*(file.place for file in files))
    number: int = library.knnmt_changed(places, len(files))
    return None if number < 0 else files[number]


def require_unchanged(files: Sequence[GuardedFile], store: Path) -> None:
    """Raise an error if one of a store's files changed: what was computed from it may be wrong."""
    if (changed := changed_file(files)) is None:
        return
    before, now = len(changed), os.fstat(changed.descriptor).st_size
    what = f"it had {before:,} bytes and has {now:,}" if now != before else "it was written to, or cannot be read"
    raise DatastoreChangedError(
        f"{changed.path}: another program changed it while the store was open: {what}. Restore the file, or build the "
        f"store again; `knnmt verify {quoted(store)}` lists all problems. To replace a store in use, move it away "
        "and move the new one to its place."
    )
