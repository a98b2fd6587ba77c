"""The data directory of a service, which only its owner can enter."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from knnmt.datastore.publication import storage_errors

_log = logging.getLogger("knnmt.service")


def prepare_data_directory(data: Path) -> None:
    """Make the directory, private whatever the process permits. An existing one becomes private, too."""
    with storage_errors(data):
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.platform == "win32" or not data.stat().st_mode & 0o077:
        return
    try:
        data.chmod(0o700)
    except OSError as error:
        _log.warning(
            "%s: other users of this machine may read memories, corrections and glossaries there, because its "
            "permissions cannot be changed: %s. Let its owner run: chmod 700 %s",
            data,
            error.strerror,
            data,
        )


def private(path: str, flags: int) -> int:
    """Open a new file that only its owner can read: an opener for `open`."""
    return os.open(path, flags, 0o600)
