"""`Refusals`: answers with an error wait if their client has had many of them.

A client that is refused at once can ask thousands of times a second, and reading what it sends delays everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_FREE = 50  # errors that are answered at once, from time to time
_RATE = 2.0  # further errors a second
_LONGEST = 20.0  # seconds that one answer waits


class Refusals:
    """How many errors clients had, of which a number is forgotten every second.

    clock: seconds, from any moment on
    most: clients that are remembered; if there are more, all begin anew
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = 10_000) -> None:
        self._clock, self._most = clock, most
        self._clear_at: dict[Hashable, float] = {}  # when everything will be forgotten, for each client

    def seconds(self, client: Hashable) -> float:
        """Count an error, and return how long its answer has to wait."""
        now = self._clock()
        if len(self._clear_at) >= self._most:
            self._clear_at.clear()
        longest = now + _FREE / _RATE + _LONGEST
        self._clear_at[client] = min(longest, max(now, self._clear_at.get(client, now)) + 1 / _RATE)
        return max(0.0, self._clear_at[client] - now - _FREE / _RATE)
