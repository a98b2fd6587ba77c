"""Cutting a corpus into slices, and turning a slice into a segment.

The cuts depend on the text, the tokenizer and nothing else, so that any number of workers can take slices and the bytes
come out the same. A slice becomes one segment file; publishing the store is a separate step.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from knnmt import timing
from knnmt.config import BatchingConfig
from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.match_tokens import word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import sameness_hash
from knnmt.corpus.units import for_model, lines_of
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.postings import word_arrays
from knnmt.datastore.segment import NOT_ALIGNED, sentence_arrays, source_arrays
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import batches_by_length
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import InputError, SettingError

SLICE_ENTRIES = 1 << 16
_SLICE_PAIRS = 1 << 13
_TOKENIZED_TOGETHER = 1024
_IS_CONTEXT = 1 << 63  # beside the length of one: pairs without keep the digests that they had
_CHARACTERS_TOGETHER = 1 << 21
_LEAST = float(np.finfo(np.float16).min)  # of a log-probability


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
            for text in (pair.source, pair.target, pair.origin):
                encoded = text.encode("utf-8")
                digest.update(len(encoded).to_bytes(8, "little"))
                digest.update(encoded)
            if pair.context:
                encoded = pair.context.encode("utf-8")
                digest.update((len(encoded) | _IS_CONTEXT).to_bytes(8, "little"))
                digest.update(encoded)
        return digest.hexdigest()[:16]


def cut_slices(
    pairs: Iterable[SegmentPair],
    tokenizer: Tokenizer,
    max_positions: int,
    dropped: Counter[str],
    accelerators: Accelerators = "drop",
) -> Iterator[Slice]:
    """Slices of about `SLICE_ENTRIES` target tokens. Pairs that do not fit the model are dropped, and counted.

    After a unit of several lines come its lines, where they can be told apart, in the same slice. The pairs are as they
    were read, the token ids of what the model is to see of them.
    """
    current = Slice()
    entries = 0
    stream = iter(pairs)
    while chunk := _chunk(stream):
        for pair in chunk:
            _require_text(pair)
        units = [(pair, *lines_of(pair)) for pair in chunk]
        seen = [for_model(pair, accelerators) for unit in units for pair in unit]
        sources = tokenizer.encode_sources([pair.source for pair in seen])
        targets = tokenizer.encode_targets([pair.target for pair in seen])
        encoded = zip(seen, sources, targets, strict=True)
        for unit in units:
            if entries >= SLICE_ENTRIES or len(current.pairs) >= _SLICE_PAIRS:
                yield current
                current = Slice()
                entries = 0
            own = list(islice(encoded, len(unit)))
            if max(map(len, own[0][1:])) > max_positions:
                dropped[f"longer than the model's {max_positions} positions"] += 1
                continue
            for pair, (shown, source, target) in zip(unit, own, strict=True):
                current.pairs.append(pair)
                current.sources.append(source)
                current.targets.append(target)
                current.lines.append(pair is not unit[0])
                current.hashes.append(sameness_hash(shown.source))
                current.words.append(word_hashes(shown.source))
                entries += len(target)
    if current.pairs:
        yield current


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
    # Both bring PyTorch, which looking into a store does not need.
    from knnmt.engine.alignment import align
    from knnmt.engine.forced import force, pass_batching, score

    lengths = np.array([len(target) for target in part.targets])
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    keys: Array = np.empty((part.entries, engine.dim), key_dtype)
    source = source_arrays(part.sources)
    if for_fast:
        source["source_states"] = np.empty((len(source["source_tokens"]), engine.dim), key_dtype)
    alignment: Array = np.empty(part.entries, np.uint16)
    log_probabilities: Array = np.empty(part.entries, np.float16)
    first_choices: Array = np.empty(part.entries, np.uint8)
    frame = set(engine.tokenizer.encode_sources([""])[0])
    longer = [max(len(source), len(target)) for source, target in zip(part.sources, part.targets, strict=True)]
    batching = BatchingConfig(sentences=None, tokens=batch_tokens) if batch_tokens else pass_batching(engine)
    for batch in batches_by_length(longer, batching):
        sources, targets = [part.sources[i] for i in batch], [part.targets[i] for i in batch]
        block = force(engine, sources, targets, encoder_states=for_fast, cross_attention=True)
        own, first_choice = score(engine, block.representations, block.targets)
        with timing.stage("keys"):
            place = first[batch][block.sentences.numpy()] + block.positions.numpy()
            keys[place] = block.representations.float().cpu().numpy()
            log_probabilities[place] = own.clamp(min=_LEAST).cpu().numpy()
            first_choices[place] = first_choice.cpu().numpy()
            if block.cross_attention is not None:
                aligned = align(block.cross_attention, sources, [*map(len, targets)], frame).cpu()
                alignment[place] = aligned[block.sentences, block.positions].clamp(max=NOT_ALIGNED).numpy()
            if block.encoder_states is not None:
                for i, tokens, states in zip(batch, sources, block.encoder_states.float().cpu().numpy(), strict=True):
                    begin = source["source_offsets"][i]
                    source["source_states"][begin : begin + len(tokens)] = states[: len(tokens)]
    if not all(np.isfinite(array).all() for array in (keys, source.get("source_states", keys))):
        raise SettingError(
            f"a key between {part.pairs[0].origin} and {part.pairs[-1].origin} is no finite number in {key_dtype}; "
            "build the store with float32 keys"
        )
    return {
        "keys": keys,
        "values": np.array([token for target in part.targets for token in target], np.int32),
        "sentences": np.repeat(np.arange(len(part.pairs), dtype=np.int32), lengths),
        "positions": (np.arange(part.entries) - np.repeat(first, lengths)).astype(np.int32),
        **sentence_arrays(part.pairs, part.targets),
        "source_hashes": np.array(part.hashes, np.int64),
        **word_arrays(part.words),
        **({"lines": np.array(part.lines, np.uint8)} if any(part.lines) else {}),
        **source,
        "alignment": alignment,
        "log_probabilities": log_probabilities,
        "first_choices": first_choices,
    }


def write_segment(directory: Path, name: str, arrays: dict[str, Array]) -> SegmentRecord:
    """Write a segment's file, whole or not at all."""
    with timing.stage("writing"):
        stored = write_stored(directory, name, arrays)
    return SegmentRecord(stored, sentences=len(arrays["target_offsets"]) - 1, entries=len(arrays["values"]))
