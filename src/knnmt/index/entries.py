"""The entries of a store for a search: keys by id, values, counts, and the mask of searched entries."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt.datastore.arrays import Array
from knnmt.datastore.joining import same_beginning
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError
from knnmt.index.key_codes import MOST_HELD, KeyCodes, sampled_ids
from knnmt.segments.repeats import Repeats, find_repeats, follow_repeats


class Entries:
    """A snapshot of a store's entries, in the order of their ids.

    Keys and values stay in the segments' memory maps. Arrays with an element for every entry are made at their first
    use: a store that is searched by segment never needs them.

    source_hashes: (sentences,) int64 of each segment, equal for sources that are forms of one another
    said_again: which entries are repeated, or None if the store repeats nothing
    """

    def __init__(self, store: Datastore, earlier: Entries | None = None) -> None:
        self.segments = list(store.segments)
        self.generation = store.manifest.generation
        self.records = [segment.record for segment in self.segments]
        self.path = store.path
        self.dim = store.manifest.dim
        self._first = np.cumsum([0, *(segment.record.entries for segment in self.segments)])
        self.entries = int(self._first[-1])
        self._rows = RowsInPlace([segment.arrays["keys"] for segment in self.segments])
        self.said_again: Repeats | None
        if earlier is None:
            self.said_again = find_repeats(self.segments)
        else:
            self.said_again = follow_repeats(earlier.said_again, earlier.segments, self.segments)
        self._codes: KeyCodes | None = None
        if earlier is not None and earlier.segments_shared_with(self) == len(earlier.segments):
            self._codes = earlier._codes
        if earlier is not None and "values" in vars(earlier):  # they were needed before, and will be again
            self.values = self._values(earlier)

    @property
    def key_dtype(self) -> torch.dtype:
        """The type in which keys are stored."""
        return self._rows.dtype

    @property
    def key_arrays(self) -> list[Array]:
        """The keys, one after the other in the order of their ids; none of the arrays is empty."""
        return self._rows.arrays

    @cached_property
    def _value_columns(self) -> RowsInPlace:
        return RowsInPlace([segment.arrays["values"][:, None] for segment in self.segments])

    def values_of(self, ids: Tensor) -> Tensor:
        """The tokens of entries by id, int32, in the shape of `ids`. Ids must exist."""
        found = torch.empty((ids.numel(), 1), dtype=torch.int32)
        if ids.numel():
            self._value_columns.gather(ids.flatten(), found)
            (least, most), vocabulary = torch.aminmax(found), self.segments[0].vocabulary
            if not 0 <= int(least) <= int(most) < vocabulary:
                raise DatastoreDamagedError(
                    f"{self.path}: the value of an entry is outside the vocabulary of {vocabulary:,}, so its files "
                    f"were altered after it was built. `knnmt verify` names the damaged files; build the store "
                    "again, or restore a copy."
                )
        return found.view(ids.shape)

    @cached_property
    def _score_columns(self) -> RowsInPlace:
        return RowsInPlace([segment.arrays["log_probabilities"][:, None] for segment in self.segments])

    def log_probabilities_of(self, ids: Tensor) -> Tensor:
        """The model's own log-probabilities of entries by id, at most 0, float32, shaped as `ids`. Ids must exist."""
        found = torch.empty((ids.numel(), 1), dtype=torch.float16)
        if ids.numel():
            self._score_columns.gather(ids.flatten(), found)
        return found.view(ids.shape).float().nan_to_num(nan=0.0).clamp(max=0)

    @cached_property
    def values(self) -> Tensor:
        """(entries,) int32, the tokens of all entries."""
        return self._values(None)

    def _values(self, earlier: Entries | None) -> Tensor:
        """The values, from an earlier snapshot for the segments that it shares, else from the segments."""
        shared = 0 if earlier is None else earlier.segments_shared_with(self)
        for segment in self.segments[shared:]:
            values = segment.arrays["values"]
            if len(values) and not 0 <= values.min() <= values.max() < segment.vocabulary:
                raise segment.damaged(f"a value is outside the vocabulary of {segment.vocabulary:,}")
        new = _joined([segment.arrays["values"] for segment in self.segments[shared:]], np.int32)
        return new if earlier is None else torch.cat([earlier.values[: self.first_entry(shared)], new])

    @cached_property
    def live(self) -> Tensor | None:
        """(entries,) bool, False for entries that were removed or repeat an earlier one (`knnmt.segments.repeats`).

        None if all entries are searched.
        """
        gone = [segment for segment in self.segments if len(segment.removed)]
        live = torch.from_numpy(np.concatenate([s.live_entries() for s in self.segments])) if gone else None
        if self.repeats is None or self.said_again is None:
            return live
        searched = torch.from_numpy(self.said_again.searched(self.entries))
        return searched if live is None else live & searched

    @cached_property
    def live_share(self) -> float:
        """The share of the entries that is searched."""
        left = self.entries if self.live is None else int(np.count_nonzero(self.live.numpy()))
        return max(1, left) / max(1, self.entries)

    @cached_property
    def repeats(self) -> Tensor | None:
        """(entries,) float32, how often the store holds each live entry; None if it repeats nothing."""
        counts = None if self.said_again is None else self.said_again.every_count(self.entries)
        return None if counts is None or not (counts > 1).any() else torch.from_numpy(counts)

    @cached_property
    def _pruned(self) -> bool:
        """Whether some entries stand for others that pruning merged into them."""
        return any("counts" in segment.arrays for segment in self.segments)

    @cached_property
    def counts(self) -> Tensor | None:
        """(entries,) float32, `repeats` with the entries that pruning merged; None if nothing was merged or repeats."""
        if not self._pruned:
            return self.repeats
        for segment in self.segments:
            if (segment.arrays.get("counts", np.ones(1)) < 1).any():
                raise segment.damaged("an entry stands for fewer than one")
        ones = [segment.arrays.get("counts", np.ones(segment.record.entries)) for segment in self.segments]
        merged = _joined(ones, np.float32)
        if self.said_again is None:
            return merged
        firsts = torch.from_numpy(self.said_again.every_first(self.entries))
        return torch.zeros_like(merged).index_add_(0, firsts, merged)

    def counts_of(self, ids: Tensor, merged: bool) -> Tensor | None:
        """`counts` of entries by id, or `repeats` if not `merged`, in the shape of `ids`. Ids must exist."""
        if merged and self._pruned:
            return None if self.counts is None else self.counts[ids]
        if self.said_again is None:
            return None
        return torch.from_numpy(self.said_again.counts_of(ids.numpy()))

    def once(self, ids: Array) -> Array:
        """Entry ids, ascending, where the first of several repeated entries replaces them."""
        firsts: Array = ids if self.said_again is None else np.unique(self.said_again.firsts_of(ids))
        return firsts

    def segments_shared_with(self, other: Entries) -> int:
        """The number of first segments that both have in common, so that their entry ids are the same."""
        return shared_beginning(self.segment_names(), other.segment_names())

    def entries_shared_with(self, other: Entries) -> int:
        """The number of first entries that both have in common, even if segments were joined since the other."""
        return same_beginning(other.segments, self.segments).entries

    def segment_names(self) -> list[str]:
        """SHA-256 of the segments' files; an index of these entries is tied to them."""
        return [segment.record.stored.sha256 for segment in self.segments]

    def keys_of(self, ids: Array) -> Array:
        """Keys of entry ids, (len(ids), dim), in the type they are stored in. Ids must exist."""
        keys = torch.empty((len(ids), self.dim), dtype=self.key_dtype)
        self.gather(torch.from_numpy(np.ascontiguousarray(ids, np.int64)), keys)
        found: Array = keys.numpy()
        return found

    def gather(self, ids: Tensor, keys: Tensor) -> None:
        """Write the keys of entry ids, (n,), into `keys` (n, dim). Ids must exist."""
        if len(ids):
            self._rows.gather(ids, keys)

    def addresses(self, ids: Tensor) -> Tensor:
        """Where the keys of entry ids are in memory, (n,), for as long as this object lives. Ids must exist."""
        return self._rows.addresses(ids) if len(ids) else ids

    def codes(self, native: Any) -> KeyCodes:
        """The codes of keys, for compiled code. A store that grows keeps those that were made."""
        codes = self._codes
        if codes is None or codes.capacity < min(self.entries, MOST_HELD):
            codes = self._codes = KeyCodes(native, self.keys_of(sampled_ids(self.entries)), self.entries)
        return codes

    def blocks(self, size: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """(id of the first entry, keys) of blocks of at most `size` entries, from entry `first` to before `last`.

        They are views of the memory maps, or copies if small segments are joined: a store that grows has many of them.
        """
        last = self.entries if last is None else last
        small: list[Array] = []
        begun = first
        for start, keys in self._pieces(size, first, last):
            if small and start - begun + len(keys) > size:
                yield begun, small[0] if len(small) == 1 else np.concatenate(small)
                small, begun = [], start
            small.append(keys)
        if small:
            yield begun, small[0] if len(small) == 1 else np.concatenate(small)

    def _pieces(self, size: int, first: int, last: int) -> Iterator[tuple[int, Array]]:
        """The same blocks within single segments; the last block of a segment may be shorter."""
        for number, segment in enumerate(self.segments):
            begin, end = int(self._first[number]), int(self._first[number + 1])
            for start in range(max(begin, first), min(end, last), size):
                yield start, segment.arrays["keys"][start - begin : min(start + size, end, last) - begin]

    def sentence_of(self, ids: Array) -> tuple[Array, Array]:
        """The segment of each entry id, and the sentence in that segment."""
        numbers = np.searchsorted(self._first, ids, side="right") - 1
        sentences = np.empty(len(ids), np.int64)
        for number in np.unique(numbers):
            mine = numbers == number
            sentences[mine] = self.segments[number].arrays["sentences"][ids[mine] - self._first[number]]
        return numbers, sentences

    def require_sound(self, measured: Tensor) -> None:
        """Refuse keys if numbers computed from them are not finite. A build writes no such keys, and near one of them
        a search would miss sound keys.
        """
        if not bool(measured.isfinite().all()):
            raise DatastoreDamagedError(
                f"{self.path}: the key of an entry is not a finite number, so its files were altered after it was "
                f"built. `knnmt verify` names the damaged files; build the store again, or restore a copy."
            )

    def first_entry(self, segment: int) -> int:
        """The id of a segment's first entry."""
        return int(self._first[segment])


class RowsInPlace:
    """Rows of several arrays of one width and type, numbered consecutively and read in one operation.

    One tensor spans the memory from the start of the first array to the end of the last. A row of it begins at every
    number, so the rows asked for are among its rows. Reading array by array took ten times as long, because a search
    asks for few rows of many arrays.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = [np.ascontiguousarray(array) for array in arrays if len(array)]  # keeps their memory alive
        self.dtype = shared_tensor(self.arrays[0]).dtype if self.arrays else torch.float32
        if not self.arrays:
            return
        size, width = self.arrays[0].itemsize, self.arrays[0].shape[1]
        if any((array.dtype, array.shape[1:]) != (self.arrays[0].dtype, (width,)) for array in self.arrays):
            raise DatastoreDamagedError("the store's segments have rows of different widths or types. Build it again.")
        if any(array.ctypes.data % size for array in self.arrays):
            self.arrays = [array.copy() for array in self.arrays]
        begin = min(array.ctypes.data for array in self.arrays)
        end = max(array.ctypes.data + array.nbytes for array in self.arrays)
        numbers = torch.frombuffer((ctypes.c_char * (end - begin)).from_address(begin), dtype=self.dtype)
        self._spanning = numbers.as_strided((len(numbers) - width + 1, width), (1, 1))
        ends = np.cumsum([len(array) for array in self.arrays])
        self._begin, self._size = begin, size
        self._rows = int(ends[-1])
        self._ends = ends[:-1]
        starts = [(array.ctypes.data - begin) // size for array in self.arrays]
        self._starts = np.array(starts) - np.concatenate([[0], ends[:-1]]) * width

    def gather(self, numbers: Tensor, rows: Tensor) -> None:
        """Write the rows of these numbers, (n,), into `rows` (n, width)."""
        if rows.shape[1] != self._spanning.shape[1] or rows.dtype != self.dtype:
            raise ValueError(f"rows are {tuple(self._spanning.shape[1:])} {self.dtype}, and room was given for others")
        torch.index_select(self._spanning, 0, self._places(numbers), out=rows)

    def addresses(self, numbers: Tensor) -> Tensor:
        """Where the rows of these numbers are in memory, (n,)."""
        return self._places(numbers) * self._size + self._begin

    def _places(self, numbers: Tensor) -> Tensor:
        """The numbers of these rows in the spanning tensor.

        In NumPy: PyTorch's own search takes several threads for a few hundred numbers. For some milliseconds
        afterwards they wait in a loop, which takes the processor from compiled steps.
        """
        wanted = numbers.numpy()
        if not 0 <= wanted.min() <= wanted.max() < self._rows:  # beyond, there is no row or no memory
            raise IndexError(f"entry ids must lie between 0 and {self._rows - 1}")
        several = len(self._ends) > 0
        starts = self._starts[np.searchsorted(self._ends, wanted, side="right")] if several else self._starts[0]
        return torch.from_numpy(wanted * self._spanning.shape[1] + starts)


def shared_beginning(some: Sequence[str], others: Sequence[str]) -> int:
    """The number of first names that both have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))


def shared_tensor(array: Array) -> Tensor:
    """A tensor that shares an array's memory. PyTorch warns that it is writable; nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.asarray(array))


def _joined(arrays: list[Array], dtype: type) -> Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False))
