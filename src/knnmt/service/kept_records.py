"""Records that the service keeps on disk: JSON files that only its owner can read, each written in one step."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeVar

from knnmt.config import check
from knnmt.datastore.publication import publish_file
from knnmt.errors import KnnmtError
from knnmt.records import as_record, parse_json
from knnmt.regular_files import read_regular

_log = logging.getLogger("knnmt.service")
Record = TypeVar("Record")


def write_kept(file: Path, record: Any) -> None:
    """Write a record, which is a dataclass."""
    content = json.dumps(asdict(record), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def write(out: IO[bytes]) -> None:
        if hasattr(os, "fchmod"):
            os.fchmod(out.fileno(), 0o600)
        out.write(content)

    publish_file(file, write)


def read_kept(file: Path, kind: type[Record], most_bytes: int, number: str | None = None) -> Record | None:
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
