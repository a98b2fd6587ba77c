"""`Exchanges`: memories that tools send or download in several steps, at addresses that contain a secret.

DATA/exchanges.json keeps them, readable only by its owner, so a tool can go on after the service was restarted.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Literal

from knnmt.service.data_directory import read_record, write_record
from knnmt.service.problems import Problem

_FILE = "exchanges.json"
_MAX_FILE_BYTES = 16 << 20
_MAX_KEPT = 1_000
_SECONDS = 86_400
Operation = Literal["import", "export"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The import or export of a memory.

    token: the part of the address where the memory is sent or downloaded
    job: the job that makes a domain of it
    created: seconds since 1970
    """

    id: str
    operation: Operation
    by: str
    domain: str
    file_name: str = ""
    job: str | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    created: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of the file."""

    exchanges: tuple[Exchange, ...] = ()


class Exchanges:
    """The exchanges of the last day. Threads may share it. data: None keeps them in memory only"""

    def __init__(self, data: Path | None) -> None:
        self._file = None if data is None else data.resolve() / _FILE
        self._lock = Lock()
        self._arriving: set[str] = set()
        kept = None if self._file is None else read_record(self._file, _Content, _MAX_FILE_BYTES)
        self._known: Mapping[str, Exchange] = {each.id: each for each in (kept or _Content()).exchanges}

    def begin(self, operation: Operation, by: str, domain: str, file_name: str = "") -> Exchange:
        """Start a new one; the oldest are deleted."""
        return self._put(Exchange(str(uuid.uuid4()), operation, by, domain, file_name))

    @contextmanager
    def receiving(self, number: str) -> Iterator[None]:
        """Receive the memory of an exchange. It is received once, and by one request at a time."""
        with self._lock:
            if number in self._arriving or self.of(number).job is not None:
                raise Problem(409, "sent_already", "the memory has already been sent, or is being sent")
            self._arriving.add(number)
        try:
            yield
        finally:
            with self._lock:
                self._arriving.discard(number)

    def sent(self, number: str, job: str) -> Exchange:
        """Record that a memory has arrived and which job makes a domain of it."""
        return self._put(replace(self.of(number), job=job))

    def of(self, number: str) -> Exchange:
        """An exchange by its id."""
        found = self._known.get(number.lower())
        if found is None:
            raise Problem(404, "unknown_job", "there is no such job")
        return found

    def with_token(self, token: str, operation: Operation) -> Exchange:
        """An exchange by the secret of its address."""
        for each in self._known.values():
            if each.operation == operation and secrets.compare_digest(each.token.encode(), token.encode()):
                return each
        raise Problem(404, "unknown_job", "there is nothing at this address, or it has expired")

    def _put(self, new: Exchange) -> Exchange:
        with self._lock:
            long_ago = time.time() - _SECONDS
            others = [each for each in self._known.values() if each.created > long_ago and each.id != new.id]
            kept = (*others[-_MAX_KEPT + 1 :], new)
            if self._file is not None:
                write_record(self._file, _Content(kept))
            self._known = {each.id: each for each in kept}
        return new
