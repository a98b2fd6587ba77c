"""`Growing`: an array of which each later state of a store has a longer one, in memory once.

A store of millions of entries is corrected one segment at a time. Whoever copies what it knows of all entries for each
correction takes longer the larger the store is; appended to, it costs what the correction costs.
"""

from __future__ import annotations

from threading import Lock
from typing import Self

import numpy as np

from knnmt.datastore.arrays import Array

_ROOM = 8  # a part of so many, beside what is there, is kept free for what comes


class _Memory:
    """What several states have a beginning of. used: how much of it the longest of them has"""

    def __init__(self, array: Array) -> None:
        self.array = np.empty(len(array) + max(1 << 16, len(array) // _ROOM), array.dtype)
        self.array[: len(array)] = array
        self.used = len(array)
        self.lock = Lock()


class Growing:
    """An array, (n,). What is in it never changes; threads may share it."""

    def __init__(self, array: Array) -> None:
        self._memory = _Memory(array)
        self.array: Array = self._memory.array[: len(array)]

    def followed_by(self, new: Array) -> Self:
        """This and more behind it: in the same memory, unless another has followed this one there already."""
        length, memory = len(self.array) + len(new), self._memory
        with memory.lock:
            if memory.used == len(self.array) and length <= len(memory.array):
                memory.array[memory.used : length] = new
                memory.used = length
                longer = object.__new__(type(self))
                longer._memory, longer.array = memory, memory.array[:length]
                return longer
        return type(self)(np.concatenate([self.array, new]))

    def with_changed(self, places: Array, values: Array) -> Self:
        """The same with other values at some places; copied only where they differ from what is there."""
        differs = self.array[places] != values
        if not differs.any():
            return self
        changed = type(self)(self.array)
        changed.array[places[differs]] = values[differs]
        return changed
