"""The answers of shards, checked before anything is computed from them.

They come from other processes and machines. An answer that cannot be right costs its own shard: nothing here trusts a
size, an offset or a token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np

from knnmt.datastore.arrays import Array, require_arrays
from knnmt.datastore.manifest import Manifest, SegmentRecord, StoredFile
from knnmt.datastore.postings import POSTINGS, WORDS
from knnmt.datastore.segment import MAX_TOKENS, REQUIRED, SOURCE, Segment, ascending, forms_of, require_rows
from knnmt.datastore.store import Datastore
from knnmt.datastore.verification import segment_problems
from knnmt.distributed.shards import Candidates, ShardState
from knnmt.segments.source_side import SourceStatistics

# The arrays that shards must return: for candidates, and for decoding, which needs no words.
_OF_SOURCES = (*SOURCE, *POSTINGS)
_OF_SENTENCES = tuple(name for name in REQUIRED if name not in WORDS)
_MOST = 1 << 48  # sentences, entries or tokens of a shard: the sums over all shards fit in 64 bits
_LONGEST = 1e9  # a key
_answers = count()


def usable(
    answers: Mapping[int, Any], silent: Mapping[int, str], is_sound: Callable[[int, Any], bool]
) -> tuple[dict[int, Any], dict[int, str]]:
    """The answers of the right form, by the numbers of the shards, and why the others are missing."""
    sound = {number: answer for number, answer in answers.items() if is_sound(number, answer)}
    return sound, {**dict.fromkeys(answers.keys() - sound.keys(), "gave an unusable answer"), **silent}


def is_state(given: Any) -> bool:
    """Whether this is the state of a shard."""
    if not isinstance(given, ShardState) or not isinstance(given.statistics, SourceStatistics):
        return False
    counts = (given.live_sentences, given.live_entries, given.entries, given.statistics.sentences)
    postings = given.statistics.postings
    return (
        isinstance(given.name, str)
        and isinstance(given.manifest, Manifest)
        and all(isinstance(each, int) and 0 <= each < _MOST for each in counts)
        and _is_row(postings, np.int64)
        and len(postings) <= MAX_TOKENS
        and float(postings.sum(dtype=np.float64)) < _MOST
    )


def is_lengths(given: Any, asked: int) -> bool:
    """Whether these are the lengths of as many keys."""
    return _is_row(given, np.floating) and len(given) == asked and bool((given < _LONGEST).all())


def is_candidates(given: Any, sources: int) -> bool:
    """Whether these are candidates for as many sources. `answered_segments` checks their arrays."""
    if not isinstance(given, Candidates) or not isinstance(given.sources, dict):
        return False
    return all(
        isinstance(row, tuple) and len(row) == sources and all(isinstance(each, float) and each >= 0 for each in row)
        for row in (given.highest, given.reach)
    ) and bool(np.isfinite(given.highest).all())


def _is_row(given: Any, kind: type[np.number[Any]]) -> bool:
    """Whether this is a row of finite numbers, none below 0."""
    if not isinstance(given, np.ndarray) or given.ndim != 1 or not np.issubdtype(given.dtype, kind):
        return False
    return bool(np.isfinite(given).all() and (given >= 0).all())


def answered_segments(
    given: Any, store: Datastore, state: ShardState, number: int, of_sentences: bool
) -> list[Segment]:
    """The arrays that a shard gave as segments of the store; an error if they cannot be.

    number: of the shard
    of_sentences: whole sentences; otherwise only the sources of candidates
    """
    if not isinstance(given, list):
        raise TypeError(f"expected a list of arrays by name, found {type(given).__name__}")
    found = [_segment(arrays, store, number, _OF_SENTENCES if of_sentences else _OF_SOURCES) for arrays in given]
    for most, what in ((state.live_sentences, "sentences"), (state.live_entries, "entries")):
        if (several := sum(getattr(each.record, what) for each in found)) > most:
            raise ValueError(f"{several:,} {what}, more than the {most:,} that it has")
    for segment in found:
        problems = (
            segment_problems(segment, store.manifest.vocabulary)
            if of_sentences
            else _candidate_problems(segment, state.statistics)
        )
        if (problem := next(problems, None)) is not None:
            raise ValueError(problem)
    return found


def _segment(given: Any, store: Datastore, number: int, needed: tuple[str, ...]) -> Segment:
    """A segment of arrays with the right types, shapes and numbers of rows. Compiled code can read them in place."""
    names = {*needed, *given} if needed is _OF_SENTENCES else needed
    sound = {name: np.require(given[name], requirements=("C", "A", "E")) for name in names}
    arrays: dict[str, Array] = {"sentences": np.empty(0, np.int32), "values": np.empty(0, np.int32), **sound}
    name = f"shard-{number}-{next(_answers)}.safetensors"
    record = SegmentRecord(
        StoredFile(name, sum(each.nbytes for each in arrays.values()), hashlib.sha256(name.encode()).hexdigest()),
        sentences=len(arrays["source_offsets"]) - 1,
        entries=len(arrays["values"]),
    )
    path = store.path / "shards" / name
    forms = forms_of(record, store.manifest)
    require_arrays(path, sound, {each: forms[each] for each in names})
    require_rows(path, arrays)
    return Segment(record, arrays, np.empty(0, np.int32), (), path, store.manifest.vocabulary)


def _candidate_problems(segment: Segment, statistics: SourceStatistics) -> Iterator[str]:
    """The same for candidates, of which there are many: only what a choice among them relies on."""
    segment.offsets("source_offsets")
    segment.source_tokens()
    tokens, sentences = segment.arrays["posting_tokens"], segment.arrays["posting_sentences"]
    often = np.diff(segment.offsets("posting_offsets"))
    if not ascending(tokens, each_once=True) or (len(tokens) and tokens[0] < 0):
        yield "its postings are not those of tokens in order"
    elif len(tokens) and tokens[-1] >= len(statistics.postings):
        yield "a token that its statistics do not have"
    elif (often > statistics.postings[tokens]).any():
        yield "a token more often than its statistics say"
    if len(sentences) and not 0 <= sentences.min() <= sentences.max() < segment.record.sentences:
        yield f"a posting names none of its {segment.record.sentences} sentences"
    if ((np.diff(sentences) < 0) & ~_ends(segment)).any():
        yield "the postings of a token are not in order"


def _ends(segment: Segment) -> Array:
    """(postings - 1,) bool, True where the postings of a token end."""
    ends = np.zeros(max(len(segment.arrays["posting_sentences"]) + 1, 2), np.bool_)
    ends[segment.arrays["posting_offsets"]] = True
    return ends[1:-1]
