"""Cutting a corpus into slices, and turning a slice into a segment.

The cuts depend on the text, the tokenizer and nothing else, so that any number of workers can take slices and the bytes
come out the same. A slice becomes one segment file; publishing the store is a separate step.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from knnmt import timing
from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import word_arrays
from knnmt.datastore.preparing import prepared_chunks
from knnmt.datastore.segment import sentence_arrays, source_arrays
from knnmt.engine.base import Engine, State
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import InputError, SettingError

SLICE_ENTRIES = 1 << 16
_SLICE_PAIRS = 1 << 13
_TOKENIZED_TOGETHER = 1024
_IS_CONTEXT = 1 << 63  # beside the length of one: pairs without keep the digests that they had
_CHARACTERS_TOGETHER = 1 << 21


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive pairs with their token ids.

    lines: which of them are lines of the unit before them
    hashes: of the sources as the model is to see them
    words: the hashes of the words of these
    """

    pairs: list[SegmentPair] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    lines: list[bool] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    words: list[list[int]] = field(default_factory=list)

    @property
    def entries(self) -> int:
        return sum(map(len, self.targets))

    def digest(self) -> str:
        """Names the slice by what is in it."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            texts = [text.encode("utf-8") for text in (pair.source, pair.target, pair.origin)]
            parts = [part for text in texts for part in (len(text).to_bytes(8, "little"), text)]
            if pair.context:
                context = pair.context.encode("utf-8")
                parts += [(len(context) | _IS_CONTEXT).to_bytes(8, "little"), context]
            digest.update(b"".join(parts))
        return digest.hexdigest()[:16]


def cut_slices(
    pairs: Iterable[SegmentPair],
    tokenizer: Tokenizer,
    max_positions: int,
    dropped: Counter[str],
    accelerators: Accelerators = "drop",
    processes: int = 0,
) -> Iterator[Slice]:
    """Slices of about `SLICE_ENTRIES` target tokens. Pairs that do not fit the model are dropped, and counted.

    processes: how many prepare text beside this one

    After a unit of several lines come its lines, where they can be told apart, in the same slice. The pairs are as they
    were read, the token ids of what the model is to see of them.
    """
    current = Slice()
    entries = 0
    for chunk, ready in prepared_chunks(_chunks(pairs), tokenizer, accelerators, processes):
        first = 0
        for number, unit in enumerate(chunk):
            if entries >= SLICE_ENTRIES or len(current.pairs) >= _SLICE_PAIRS:
                yield current
                current = Slice()
                entries = 0
            lines = ready.lines.get(number, [])
            own = slice(first, first + 1 + len(lines))
            first = own.stop
            if max(len(ready.sources[own.start]), len(ready.targets[own.start])) > max_positions:
                dropped[f"longer than the model's {max_positions} positions"] += 1
                continue
            current.pairs.append(unit)
            current.pairs.extend(SegmentPair(*line, unit.origin, unit.context) for line in lines)
            current.lines.extend([False, *[True] * len(lines)])
            current.sources.extend(ready.sources[own])
            current.targets.extend(ready.targets[own])
            current.hashes.extend(ready.hashes[own])
            current.words.extend(ready.words[own])
            entries += sum(map(len, ready.targets[own]))
    if current.pairs:
        yield current


def _chunks(pairs: Iterable[SegmentPair]) -> Iterator[list[SegmentPair]]:
    stream = iter(pairs)
    while chunk := _chunk(stream):
        for pair in chunk:
            _require_text(pair)
        yield chunk


def _chunk(stream: Iterator[SegmentPair]) -> list[SegmentPair]:
    """Pairs to tokenize together: not many, and not much text."""
    chunk, characters = [], 0
    for pair in islice(stream, _TOKENIZED_TOGETHER):
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if characters >= _CHARACTERS_TOGETHER:
            break
    return chunk


def _require_text(pair: SegmentPair) -> None:
    try:
        for text in (pair.source, pair.target, pair.origin, pair.context):
            text.encode("utf-8")
    except UnicodeEncodeError as error:
        origin = pair.origin.encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{origin}: expected text, found half of a surrogate pair ({error.reason})") from error


def encode_slice(
    engine: Engine[State], part: Slice, key_dtype: str, batch_tokens: int | None, for_fast: bool = False
) -> dict[str, Array]:
    """The arrays of a slice's segment: forced passes over batches of similar length, entries in text order.

    batch_tokens: most tokens a side of a pass, padding counted; None for what suits the device
    for_fast: the encoder's states as well
    """
    return begin_slice(engine, part, key_dtype, batch_tokens, for_fast)()


def begin_slice(
    engine: Engine[State], part: Slice, key_dtype: str, batch_tokens: int | None, for_fast: bool = False
) -> Callable[[], dict[str, Array]]:
    """Ask the device for all of a slice, and give what waits for it and makes the arrays; any thread may call that."""
    from knnmt.datastore.passing import begin_passes  # which brings PyTorch; looking into a store does not need it

    passed = begin_passes(engine, part.sources, part.targets, key_dtype, batch_tokens, for_fast)

    def arrays() -> dict[str, Array]:
        found = passed()
        if found is None:
            raise SettingError(
                f"a key between {part.pairs[0].origin} and {part.pairs[-1].origin} is no finite number in {key_dtype}; "
                "build the store with float32 keys"
            )
        lengths = np.array([len(target) for target in part.targets])
        first = np.cumsum(lengths) - lengths
        of_sentences = sentence_arrays(part.pairs, part.targets)
        return {
            "values": of_sentences["target_tokens"],
            "sentences": np.repeat(np.arange(len(part.pairs), dtype=np.int32), lengths),
            "positions": (np.arange(part.entries) - np.repeat(first, lengths)).astype(np.int32),
            **of_sentences,
            "source_hashes": np.array(part.hashes, np.int64),
            **word_arrays(part.words),
            **({"lines": np.array(part.lines, np.uint8)} if any(part.lines) else {}),
            **source_arrays(part.sources),
            **found,
        }

    return arrays


def write_segment(directory: Path, name: str, arrays: dict[str, Array]) -> SegmentRecord:
    """Write a segment's file, whole or not at all."""
    with timing.stage("writing"):
        stored = write_stored(directory, name, arrays)
    return SegmentRecord(stored, sentences=len(arrays["target_offsets"]) - 1, entries=len(arrays["values"]))
