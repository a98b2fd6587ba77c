"""Concordance: the newest pairs of a store whose texts contain some words, found by reading all texts once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.prepared import TEXTS
from knnmt.datastore.segment import Segment

_ASCII = re.compile(r"[\x00-\x7f]+")
_LETTERS = 50  # of a word; more would find hardly less


def concordance(
    segments: Sequence[Segment],
    words: Sequence[str],
    most: int,
    proceed: Callable[[], bool] = lambda: True,
    block_bytes: int = 1 << 20,
) -> list[SegmentPair]:
    """The newest pairs whose source or target contains each word, also within a word; capitals do not count.

    A pair of texts that the store holds several times is listed once.

    Args:
        segments: The segments of a store, the oldest first.
        words: At least one word.
        most: The most pairs to return.
        proceed: Is called before each block of texts; if it returns False, the search ends with what it has.
        block_bytes: The size of texts that are searched at once; other threads run between two blocks.
    """
    wanted = [word.lower() for word in words]
    pattern = _pattern(wanted)
    pairs: dict[tuple[str, str], SegmentPair] = {}
    read = (_newest_first(segment, pattern, proceed, block_bytes) for segment in reversed(segments))
    for pair in chain.from_iterable(read):
        if all(word in pair.source.lower() or word in pair.target.lower() for word in wanted):
            pairs.setdefault((pair.source, pair.target), pair)
            if len(pairs) == most:
                break
    return list(pairs.values())


def _pattern(words: Sequence[str]) -> re.Pattern[bytes]:
    """What texts with these words contain, in UTF-8 whose ASCII letters are in lower case: as much as can be ASCII."""
    part = max((run for word in words for run in _ASCII.findall(word)), key=len, default="")
    if len(part) > 1:
        return re.compile(re.escape(part.encode()))
    letters = ({letter, letter if letter.isascii() else letter.upper()} for letter in max(words, key=len)[:_LETTERS])
    forms = (b"|".join(sorted(re.escape(form.encode()) for form in each)) for each in letters)
    return re.compile(b"".join(b"(?:" + each + b")" for each in forms))


def _newest_first(
    segment: Segment, pattern: re.Pattern[bytes], proceed: Callable[[], bool], block_bytes: int
) -> Iterator[SegmentPair]:
    """The live units of a segment in whose texts, origins or contexts a pattern matches, from the last to the first."""
    begins = segment.offsets("text_offsets")[::TEXTS]  # where each sentence begins; the last number is the end
    lines = segment.arrays["lines"]
    removed = set(segment.gone_sentences().tolist())
    end = len(begins) - 1
    while end > 0 and proceed():
        first = min(end - 1, int(np.searchsorted(begins, begins[end] - block_bytes)))
        texts: bytes = segment.arrays["texts"][begins[first] : begins[end]].tobytes()
        for place in reversed(_places(texts.lower(), begins[first : end + 1] - begins[first], pattern)):
            sentence = first + place
            if sentence not in removed and not lines[sentence]:
                yield segment.pair(sentence)
        end = first


def _places(texts: bytes, begins: Array, pattern: re.Pattern[bytes]) -> list[int]:
    """In which of some sentences, which lie one after the other, a pattern matches; ascending."""
    places: list[int] = []
    start = 0
    while start < len(texts) and (match := pattern.search(texts, start)):
        places.append(int(np.searchsorted(begins, match.start(), side="right")) - 1)
        start = int(begins[places[-1] + 1])
    return places
