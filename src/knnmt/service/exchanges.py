"""`Exchanges`: memories that tools send or take in several steps, by addresses that hold a secret."""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

from knnmt.service.problems import Problem

_MOST = 1_000
_SECONDS = 86_400
Operation = Literal["import", "export"]


@dataclass(slots=True, eq=False)
class Exchange:
    """A memory on its way. token: part of the address where it is put or taken; job: what makes a domain of it"""

    id: str
    operation: Operation
    by: str
    domain: str
    file_name: str = ""
    job: str | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    created: float = field(default_factory=time.monotonic)


class Exchanges:
    """The exchanges of the last day. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, Exchange] = {}

    def begin(self, operation: Operation, by: str, domain: str, file_name: str = "") -> Exchange:
        """A new one; the oldest are forgotten."""
        begun = Exchange(str(uuid.uuid4()), operation, by, domain, file_name)
        with self._lock:
            long_ago = time.monotonic() - _SECONDS
            kept = [each for each in self._known.values() if each.created > long_ago][-_MOST + 1 :]
            self._known = {each.id: each for each in (*kept, begun)}
        return begun

    def of(self, number: str) -> Exchange:
        """One by its number."""
        found = self._known.get(number.lower())
        if found is None:
            raise Problem(404, "unknown_job", "there is no such job")
        return found

    def with_token(self, token: str, operation: Operation) -> Exchange:
        """One by the secret of its address."""
        for each in list(self._known.values()):
            if each.operation == operation and secrets.compare_digest(each.token.encode(), token.encode()):
                return each
        raise Problem(404, "unknown_job", "there is nothing at this address, or no longer")
