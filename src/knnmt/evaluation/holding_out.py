"""The part that adapting holds out of a memory:

a small part by a fixed hash, half for tuning and half for the report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, is_held_out, spread

ReadPairs = Callable[[], Iterable[SegmentPair]]
MAX_HELD_OUT = 1000  # pairs to hold out
_MAX_SHARE = 0.1  # of the memory, at most
MIN_HELD_OUT = 40  # the fewest pairs for useful tuning and reporting


@dataclass(frozen=True, slots=True)
class Plan:
    """A memory to adapt to, and the text for choosing and measuring settings.

    memory: reads it again
    count: its pairs
    share: of its sources, by `is_held_out`, that the store is first built without
    held_out: their pairs; empty if other text is given, or the memory is too small
    tuning, reported: the text for choosing and for measuring settings; empty if there is too little
    digest: of all this text
    """

    memory: ReadPairs
    count: int
    share: float
    held_out: Sequence[SegmentPair]
    tuning: Sequence[SegmentPair]
    reported: Sequence[SegmentPair]
    digest: str

    def built_first(self) -> Iterator[SegmentPair]:
        """The memory without the held-out pairs."""
        return (pair for pair in self.memory() if not is_held_out(pair.source, self.share))


def plan(memory: ReadPairs, development: Iterable[SegmentPair] | None = None) -> Plan:
    """Read a whole memory and decide; `memory` is called each time it has to be read.

    development: text to tune on and report, so that nothing has to be held out
    """
    text = hashlib.sha256()
    count = sum(1 for _ in _hashed(memory(), text))
    if development is not None:
        text.update(b"development")
        tuning, reported = _useful_halves(list(_hashed(development, text)))
        return Plan(
            memory, count, 0.0, (), spread(tuning, MAX_HELD_OUT), spread(reported, MAX_HELD_OUT), text.hexdigest()
        )
    share = min(_MAX_SHARE, MAX_HELD_OUT / count) if count * _MAX_SHARE >= MIN_HELD_OUT else 0.0
    held_out = [pair for pair in memory() if is_held_out(pair.source, share)] if share else []
    tuning, reported = _useful_halves(held_out)
    if not tuning or len(held_out) > count / 2:  # the same few sources repeat
        return Plan(memory, count, 0.0, (), (), (), text.hexdigest())
    return Plan(memory, count, share, held_out, tuning, reported, text.hexdigest())


def _useful_halves(pairs: Sequence[SegmentPair]) -> tuple[list[SegmentPair], list[SegmentPair]]:
    tuning, reported = halves(pairs)
    return (tuning, reported) if min(len(tuning), len(reported)) >= MIN_HELD_OUT // 4 else ([], [])


def _hashed(pairs: Iterable[SegmentPair], text: hashlib._Hash) -> Iterator[SegmentPair]:
    for pair in pairs:
        line = f"{len(pair.source)} {len(pair.target)} {pair.source}{pair.target}{pair.origin}\n"
        text.update(line.encode("utf-8", "surrogatepass"))
        yield pair
