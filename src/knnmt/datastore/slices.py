"""Cuts a corpus into slices, and turns a slice into a segment.

The cuts depend only on the text and the tokenizer, so any number of workers can take slices and the resulting bytes
are the same. A slice becomes one segment file; publishing the store is a separate step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from knnmt import timing
from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.pairs import AnyPair, SegmentPair, as_pairs
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import word_arrays
from knnmt.datastore.prepared import Slice
from knnmt.datastore.preparing import prepared_chunks
from knnmt.datastore.segment import sentence_arrays, source_arrays
from knnmt.engine.base import Engine, State
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import SettingError

SLICE_ENTRIES = 1 << 16
_CHARACTERS_TOGETHER = 1 << 21


def cut_slices(
    pairs: Iterable[AnyPair],
    tokenizer: Tokenizer,
    max_positions: int,
    dropped: Counter[str],
    accelerators: Accelerators = "drop",
    processes: int = 0,
    pairs_per_slice: int = 1 << 13,
    pairs_per_chunk: int = 1024,
) -> Iterator[Slice]:
    """Slices of about `SLICE_ENTRIES` target tokens. Pairs that do not fit the model are dropped and counted.

    processes: how many other processes prepare text
    pairs_per_slice: at most about so many are in a slice
    pairs_per_chunk: at most so many are prepared together

    A unit of several lines is followed by its lines in the same slice, if they can be matched. Texts are stored as they
    were read; token ids are those of the texts that the model sees.
    """
    begun: list[Slice] = []
    entries = sentences = 0
    for chunk in prepared_chunks(_chunks(pairs, pairs_per_chunk), tokenizer, accelerators, processes):
        ready = _fitting(chunk, max_positions, dropped)
        ends = np.append(np.flatnonzero(ready.lines == 0)[1:], len(ready))  # ends of units with their lines
        told = ready.targets.offsets  # entries before each sentence
        first = 0
        while first < len(ready):
            full = min(
                np.searchsorted(told[ends], told[first] + SLICE_ENTRIES - entries),
                np.searchsorted(ends, first + pairs_per_slice - sentences),
            )
            end = int(ends[min(full, len(ends) - 1)])
            begun.append(ready.between(first, end))
            entries, sentences, first = entries + begun[-1].entries, sentences + end - first, end
            if full < len(ends):
                yield Slice.joined(begun)
                begun, entries, sentences = [], 0, 0
    if begun:
        yield Slice.joined(begun)


def too_long_for(max_positions: int) -> str:
    """Why a pair is dropped, for the summary."""
    return f"longer than the model's {max_positions} positions"


def _fitting(ready: Slice, max_positions: int, dropped: Counter[str]) -> Slice:
    """The slice without units that are too long for the model, and without their lines."""
    is_unit = ready.lines == 0
    too_long = is_unit & (np.maximum(ready.sources.lengths, ready.targets.lengths) > max_positions)
    if not (count := int(too_long.sum())):
        return ready
    dropped[too_long_for(max_positions)] += count
    units = np.flatnonzero(is_unit)[np.cumsum(is_unit) - 1]
    return ready.taken(np.flatnonzero(~too_long[units]))


def _chunks(pairs: Iterable[AnyPair], most: int) -> Iterator[list[SegmentPair]]:
    """Groups of pairs to prepare together, limited in number and in text."""
    chunk: list[SegmentPair] = []
    characters = 0
    for pair in as_pairs(pairs):
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) >= most or characters >= _CHARACTERS_TOGETHER:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def encode_slice(
    engine: Engine[State], part: Slice, key_dtype: str, batch_tokens: int | None, for_fast: bool = False
) -> dict[str, Array]:
    """The arrays of a slice's segment: forced passes over batches of similar length, entries in text order.

    batch_tokens: at most this many tokens per side of a pass, including padding; None chooses by the device
    for_fast: also the encoder's states
    """
    return begin_slice(engine, part, key_dtype, batch_tokens, for_fast)()


def begin_slice(
    engine: Engine[State], part: Slice, key_dtype: str, batch_tokens: int | None, for_fast: bool = False
) -> Callable[[], dict[str, Array]]:
    """Start a slice on the device. Returns a function that waits and makes the arrays; any thread may call it."""
    from knnmt.datastore.passing import begin_passes  # it imports PyTorch, which reading a store does not need

    passed = begin_passes(engine, part.sources, part.targets, key_dtype, batch_tokens, for_fast)

    def arrays() -> dict[str, Array]:
        found = passed()
        if found is None:
            raise SettingError(
                f"a key between {part.origin(0)} and {part.origin(-1)} is not a finite number in {key_dtype}; "
                f"build the store with float32 keys"
            )
        sentences, positions = part.targets.places()
        return {
            "values": part.targets.numbers,
            "sentences": sentences.astype(np.int32),
            "positions": positions.astype(np.int32),
            **sentence_arrays(part.texts, part.targets),
            "source_hashes": part.hashes,
            **word_arrays(part.words),
            "lines": part.lines,
            **source_arrays(part.sources),
            **found,
        }

    return arrays


def write_segment(directory: Path, name: str, arrays: dict[str, Array]) -> SegmentRecord:
    """Write a segment's file, atomically."""
    with timing.stage("writing"):
        stored = write_stored(directory, name, arrays)
    return SegmentRecord(stored, sentences=len(arrays["target_offsets"]) - 1, entries=len(arrays["values"]))
