"""`Usage`: how many characters were translated for each key.

DATA/usage.json keeps the numbers while the service does not run. If the service is killed, those of the last few
seconds are lost.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

from knnmt.config import check
from knnmt.errors import KnnmtError
from knnmt.service.data_directory import read_record, write_record

_log = logging.getLogger("knnmt.service")
_FILE = "usage.json"
_MAX_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of the file. characters: by the names of keys"""

    characters: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(all(each >= 0 for each in self.characters.values()), "counts of characters must be at least 0")


class Usage:
    """Characters by the names of keys. Threads may share it.

    data: None keeps them in memory only
    seconds: between two writes
    """

    def __init__(self, data: Path | None, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._file = None if data is None else data.resolve() / _FILE
        self._lock, self._writing = Lock(), Lock()
        kept = None if self._file is None else read_record(self._file, _Content, _MAX_FILE_BYTES)
        self._characters = Counter((kept or _Content()).characters)
        self._written = time.monotonic()

    def count(self, name: str, characters: int) -> None:
        """Add the characters of a request."""
        with self._lock:
            self._characters[name] += characters
            is_due = self._file is not None and time.monotonic() > self._written + self._seconds
            if is_due:
                self._written = time.monotonic()
        if is_due:
            Thread(target=self.save, name="knnmt-usage").start()  # the request does not wait for the disk

    def of(self, name: str) -> int:
        """The characters that were translated for a key."""
        return self._characters[name]

    def save(self) -> None:
        """Write the numbers, if there is a data directory."""
        if self._file is None:
            return
        with self._writing:
            with self._lock:
                kept = _Content(dict(self._characters))
            try:
                write_record(self._file, kept)
            except KnnmtError as error:
                _log.error("cannot write the numbers of translated characters: %s", error)
