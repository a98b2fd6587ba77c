"""`Exchanges`: memories that tools send or take in several steps, by addresses that hold a secret.

DATA/exchanges.json has them, for its owner alone, so that a tool can go on asking after the service was started again.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import IO, Literal

from knnmt.datastore.publication import publish_file
from knnmt.errors import KnnmtError
from knnmt.records import as_record, parse_json
from knnmt.regular_files import read_regular
from knnmt.service.problems import Problem

_log = logging.getLogger("knnmt.service")
_FILE = "exchanges.json"
_MAX_FILE_BYTES = 16 << 20
_MAX_KEPT = 1_000
_SECONDS = 86_400
Operation = Literal["import", "export"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A memory on its way. token: part of the address where it is put or taken; job: what makes a domain of it

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
class _Kept:
    """As the file has them."""

    exchanges: tuple[Exchange, ...] = ()


class Exchanges:
    """The exchanges of the last day. Threads may share it. data: None forgets them with the process"""

    def __init__(self, data: Path | None) -> None:
        self._file = None if data is None else data.resolve() / _FILE
        self._lock = Lock()
        self._known: Mapping[str, Exchange] = {each.id: each for each in self._read().exchanges}

    def begin(self, operation: Operation, by: str, domain: str, file_name: str = "") -> Exchange:
        """A new one; the oldest are forgotten."""
        return self._put(Exchange(str(uuid.uuid4()), operation, by, domain, file_name))

    def sent(self, number: str, job: str) -> Exchange:
        """A memory is there, and a job makes a domain of it."""
        return self._put(replace(self.of(number), job=job))

    def of(self, number: str) -> Exchange:
        """One by its number."""
        found = self._known.get(number.lower())
        if found is None:
            raise Problem(404, "unknown_job", "there is no such job")
        return found

    def with_token(self, token: str, operation: Operation) -> Exchange:
        """One by the secret of its address."""
        for each in self._known.values():
            if each.operation == operation and secrets.compare_digest(each.token.encode(), token.encode()):
                return each
        raise Problem(404, "unknown_job", "there is nothing at this address, or no longer")

    def _put(self, new: Exchange) -> Exchange:
        with self._lock:
            long_ago = time.time() - _SECONDS
            others = [each for each in self._known.values() if each.created > long_ago and each.id != new.id]
            kept = (*others[-_MAX_KEPT + 1 :], new)
            if self._file is not None:
                content = json.dumps({"exchanges": [asdict(each) for each in kept]}).encode()

                def write(out: IO[bytes]) -> None:
                    os.fchmod(out.fileno(), 0o600) if hasattr(os, "fchmod") else None
                    out.write(content)

                publish_file(self._file, write)
            self._known = {each.id: each for each in kept}
        return new

    def _read(self) -> _Kept:
        if self._file is None or not self._file.exists():
            return _Kept()
        try:
            return as_record(_Kept, parse_json(read_regular(self._file, _MAX_FILE_BYTES)))
        except (OSError, ValueError, KnnmtError) as error:
            _log.error("%s: cannot be read, and is begun anew: %s", self._file, error)
            return _Kept()
