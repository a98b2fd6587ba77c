"""Rows of numbers of different lengths, such as the token ids of many texts, one after the other in one array.

Cutting, joining, padding and sending many texts to other processes then costs no more than copying memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Rows(Sequence[list[int]]):
    """numbers: those of all rows; offsets: where each row begins, and where the last one ends, int64, from 0 on"""

    numbers: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: DTypeLike = np.int32) -> Rows:
        """The rows of a sequence; `Rows` are returned as they are."""
        if isinstance(rows, cls):
            return rows
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls.cut(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)

    @classmethod
    def cut(cls, numbers: NDArray[Any], lengths: Sequence[int] | NDArray[np.int64]) -> Rows:
        """Cut an array into rows of these lengths."""
        return cls(numbers, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts; there must be at least one part."""
        numbers = np.concatenate([part.numbers for part in parts])
        return cls.cut(numbers, np.concatenate([part.lengths for part in parts]))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    def taken(self, rows: Sequence[int] | NDArray[np.int64]) -> Rows:
        """The rows with these indices, in the given order."""
        chosen = Rows.cut(self.numbers, self.lengths[rows])
        places = np.arange(chosen.offsets[-1]) + np.repeat(
            self.offsets[:-1][rows] - chosen.offsets[:-1], chosen.lengths
        )
        return Rows(self.numbers[places], chosen.offsets)

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each number, its row and its position in that row."""
        rows = np.repeat(np.arange(len(self)), self.lengths)
        return rows, np.arange(len(rows)) - self.offsets[rows]

    def padded(self, padding: int) -> NDArray[np.int64]:
        """(rows, longest): each row filled up with padding."""
        filled = np.full((len(self), self.longest), padding, np.int64)
        filled[np.arange(self.longest) < self.lengths[:, None]] = self.numbers
        return filled

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, place: int) -> list[int]: ...

    @overload
    def __getitem__(self, place: slice) -> Rows: ...

    def __getitem__(self, place: int | slice) -> list[int] | Rows:
        """One row, or consecutive rows that share the array."""
        if isinstance(place, slice):
            first, end, step = place.indices(len(self))
            if step != 1:
                raise ValueError(f"rows that follow one another are expected, not every {step}th")
            offsets = self.offsets[first : max(first, end) + 1]
            return Rows(self.numbers[offsets[0] : offsets[-1]], offsets - offsets[0])
        number = range(len(self))[place]
        row: list[int] = self.numbers[self.offsets[number] : self.offsets[number + 1]].tolist()
        return row
