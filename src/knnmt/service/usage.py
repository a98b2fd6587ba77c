"""`Usage`: how many characters were translated for each key since the service was started."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Usage:
    """Characters by the names of keys. Threads may share it."""

    def __init__(self) -> None:
        self._lock, self._characters = Lock(), Counter[str]()

    def count(self, name: str, characters: int) -> None:
        """Add what was translated for a key."""
        with self._lock:
            self._characters[name] += characters

    def of(self, name: str) -> int:
        """What was translated for a key."""
        return self._characters[name]
