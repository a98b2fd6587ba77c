"""Recent results, by everything that they depend on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from knnmt.translator.translation import Translation


class ResultCache:
    """A least-recently-used cache of results. hits: texts that were found, or that joined an equal one"""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, OrderedDict[Hashable, Translation]()
        self.hits = 0

    def get(self, key: Hashable) -> Translation | None:
        """The remembered result, or None."""
        found = self._held.get(key)
        if found is not None:
            self.hits += 1
            self._held.move_to_end(key)
        return found

    def put(self, key: Hashable, made: Translation) -> None:
        """Remember a result, unless it is an error."""
        if made.error is None and self._most:
            self._held[key] = made
            while len(self._held) > self._most:
                self._held.popitem(last=False)
