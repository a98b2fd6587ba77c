"""`Refusals`: answers with an error wait if their client has had many of them.

A client that is refused at once can ask thousands of times a second, and reading what it sends delays everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

_RATE = 2.0  # errors a second that are answered in the long run
_LONGEST = 20.0  # seconds that one answer waits


class Refusals:
    """How many errors clients had, of which a number is forgotten every second.

    free: errors of a client that are answered at once
    clock: seconds, from any moment on
    most: clients that are remembered; if there are more, all begin anew
    """

    def __init__(self, free: int, clock: Callable[[], float] = time.monotonic, most: int = 10_000) -> None:
        self._free, self._clock, self._most = free, clock, most
        self._clear_at: dict[Hashable, float] = {}  # when everything will be forgotten, for each client

    def seconds(self, client: Hashable) -> float:
        """Count an error, and return how long its answer has to wait."""
        now = self._clock()
        if len(self._clear_at) >= self._most:
            self._clear_at.clear()
        longest = now + self._free / _RATE + _LONGEST
        self._clear_at[client] = min(longest, max(now, self._clear_at.get(client, now)) + 1 / _RATE)
        return max(0.0, self._clear_at[client] - now - self._free / _RATE)
