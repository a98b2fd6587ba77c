"""Recent results, by everything that they depend on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from knnmt.translator.translation import Translation

_USUAL_SIZE = 500  # characters and tokens of a result


class ResultCache:
    """A least-recently-used cache of results.

    hits: texts that were found, or that joined an equal one
    most: results, at most; if they are longer than usual ones, fewer
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, OrderedDict[Hashable, Translation]()
        self._size = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._held)

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
            if (replaced := self._held.pop(key, None)) is not None:
                self._size -= _size(replaced)
            self._held[key] = made
            self._size += _size(made)
            while len(self._held) > self._most or self._size > self._most * _USUAL_SIZE:
                self._size -= _size(self._held.popitem(last=False)[1])


def _size(made: Translation) -> int:
    """About the memory that a result takes, in characters and tokens of it and of its alternatives."""
    own = len(made.source) + len(made.text) + len(made.tokens) + len(made.warnings)
    return own + sum(map(_size, made.alternatives))
