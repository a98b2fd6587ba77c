"""The data directory of a service, which only its owner can enter, and the records in it: JSON, written in one step."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeVar

from knnmt.config import check
from knnmt.datastore.publication import publish_file, storage_errors
from knnmt.errors import KnnmtError
from knnmt.records import as_record, parse_json
from knnmt.regular_files import read_regular

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


_log = logging.getLogger("knnmt.service")
Record = TypeVar("Record")


def write_record(file: Path, record: Any) -> None:
    """Write a record, which is a dataclass."""
    content = json.dumps(asdict(record), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def write(out: IO[bytes]) -> None:
        if hasattr(os, "fchmod"):
            os.fchmod(out.fileno(), 0o600)
        out.write(content)

    publish_file(file, write)


def read_record(file: Path, kind: type[Record], most_bytes: int, number: str | None = None) -> Record | None:
    """The record of a file; None if there is none. A file that cannot be read is logged and counts as none.

    number: the id that the record must have
    """
    try:
        record = as_record(kind, parse_json(read_regular(file, most_bytes)))
        check(number in (None, getattr(record, "id", None)), "it has the id of another record")
        return record
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KnnmtError) as error:
        _log.error("%s: cannot be read and is skipped: %s", file, error)
        return None
