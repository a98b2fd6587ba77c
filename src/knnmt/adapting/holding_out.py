"""The part that adapting holds out of a memory, half for tuning and half for the report.

A translator meets new documents, not single sentences from the midst of known ones. So whole stretches are held out of
a memory in the order of its documents. A shuffled memory has none: single sentences are held out, and what is nearly
the same as one of them.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, is_held_out, spread

ReadPairs = Callable[[], Iterable[SegmentPair]]
MAX_HELD_OUT = 1000  # pairs to hold out
_MAX_SHARE = 0.1  # of the memory, at most
MIN_HELD_OUT = 40  # the fewest pairs for useful tuning and reporting
_STRETCHES = 8  # to hold out, at least
_STRETCH = 100  # pairs in a stretch, at most
_COMPARED = 10_000  # pairs that are compared with others
_MORE_ALIKE = 2  # neighbours in a text have at least this many times as many words in common as other pairs
_MIN_WORDS = 4  # in such a pair
_NEARLY_SAME = 0.6  # the share of common words
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Plan:
    """A memory to adapt to, and the text for choosing and measuring settings.

    memory: reads it again
    count: its pairs
    held_out: pairs that the store is first built without; empty if other text is given, or the memory is too small
    places: their places in the memory
    tuning, reported: the text for choosing and for measuring settings; empty if there is too little
    digest: of all this text
    ordered: whether whole stretches are held out, because the memory is in the order of its documents
    """

    memory: ReadPairs
    count: int
    held_out: Sequence[SegmentPair]
    places: frozenset[int]
    tuning: Sequence[SegmentPair]
    reported: Sequence[SegmentPair]
    digest: str
    ordered: bool = False

    def built_first(self) -> Iterator[SegmentPair]:
        """The memory without the held-out pairs."""
        return (pair for place, pair in enumerate(self.memory()) if place not in self.places)

    @property
    def in_words(self) -> str:
        """A line for people about what is held out."""
        held = f"{len(self.held_out):,} of {self.count:,} pairs, to choose settings and to measure the gain"
        if self.ordered:
            return f"{held}: stretches of whole text"
        return f"{held}: single sentences, because the memory is in no order. New documents may gain less"

    @property
    def parts_in_words(self) -> str:
        """How many pairs each part has."""
        alike = len(self.held_out) - len(self.tuning) - len(self.reported)
        parts = f"{len(self.tuning):,} to tune on, {len(self.reported):,} to report"
        return f"{parts}, {alike:,} nearly the same as one of them" if alike else parts


def plan(memory: ReadPairs, development: Iterable[SegmentPair] | None = None) -> Plan:
    """Read a whole memory and decide; `memory` is called each time it has to be read.

    development: text to tune on and report, so that nothing has to be held out
    """
    text, order, count = hashlib.sha256(), _Order(), 0
    for pair in _hashed(memory(), text):
        order.see(pair.source)
        count += 1
    if development is not None:
        text.update(b"development")
        tuning, reported = _useful(*halves(list(_hashed(development, text))))
        halved = spread(tuning, MAX_HELD_OUT), spread(reported, MAX_HELD_OUT)
        return Plan(memory, count, (), frozenset(), *halved, text.hexdigest())
    nothing = Plan(memory, count, (), frozenset(), (), (), text.hexdigest())
    if count * _MAX_SHARE < MIN_HELD_OUT:
        return nothing
    share = min(_MAX_SHARE, MAX_HELD_OUT / count)
    drawn = _stretches(memory(), count, share) if order.holds else _sentences(memory, share)
    held_out, places, parts = [], [], tuple[list[SegmentPair], ...](([], [], []))
    for place, part, pair in drawn:
        places.append(place)
        held_out.append(pair)
        parts[part].append(pair)
    tuning, reported = _useful(parts[_TUNING], parts[_REPORTED])
    if not tuning or len(held_out) > count / 2:  # the same few sources repeat
        return nothing
    return Plan(memory, count, held_out, frozenset(places), tuning, reported, text.hexdigest(), order.holds)


_TUNING, _REPORTED, _NEITHER = range(3)
_Drawn = Iterator[tuple[int, int, SegmentPair]]
"""Places in the memory, parts and pairs."""


def _stretches(pairs: Iterable[SegmentPair], count: int, share: float) -> _Drawn:
    """Stretches at even distances, in turn for tuning and for the report. A stretch is of one document."""
    longest = max(1, min(_STRETCH, int(count * share) // _STRETCHES))
    document, length, number = "", longest, -1
    for place, pair in enumerate(pairs):
        own = pair.origin.partition("#")[0]
        if own != document or length == longest:
            document, length, number = own, 0, number + 1
        length += 1
        drawn = int((number + 1) * share)
        if drawn > int(number * share):
            yield place, drawn % 2, pair


def _sentences(memory: ReadPairs, share: float) -> _Drawn:
    """Sentences by a hash, and what is nearly the same as one of them."""
    sources = dict.fromkeys(pair.source for pair in memory() if is_held_out(pair.source, share))
    tuning, _ = halves([SegmentPair(source, "", "") for source in sources])
    tuning_sources, near = {pair.source for pair in tuning}, NearDuplicates(list(sources))
    for place, pair in enumerate(memory()):
        if pair.source in sources:
            yield place, _TUNING if pair.source in tuning_sources else _REPORTED, pair
        elif near.include(pair.source):
            yield place, _NEITHER, pair


class _Order:
    """Whether a memory is in the order of its documents: neighbours have more words in common than other pairs.

    Only its first pairs of several words are compared, each with the one before it and with any earlier one.
    """

    def __init__(self) -> None:
        self._seen: list[frozenset[str]] = []
        self._near = self._any = 0.0
        self._dice = random.Random(0)  # noqa: S311 - the same choice every time

    def see(self, source: str) -> None:
        """Read the next source."""
        count = len(self._seen)
        if count == _COMPARED:
            return
        words = _words(source)
        if len(words) < _MIN_WORDS:  # the same label twice would count as much as twenty sentences
            return
        if count:
            self._near += _common(words, self._seen[-1])
            self._any += _common(words, self._dice.choice(self._seen))
        self._seen.append(words)

    @property
    def holds(self) -> bool:
        return self._near > _MORE_ALIKE * self._any


class NearDuplicates:
    """Finds texts most of whose words are those of one of some sources.

    Two sets of words with such a part in common share one of the rarest words of either: only these are looked up.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        sets = [_words(source) for source in sources]
        often = Counter(word for words in sets for word in words)
        self._with: dict[str, list[frozenset[str]]] = {}
        for words in sets:
            rarest = sorted(words, key=lambda word: (often[word], word))
            for word in rarest[: len(words) - math.ceil(_NEARLY_SAME * len(words)) + 1]:
                self._with.setdefault(word, []).append(words)

    def include(self, source: str) -> bool:
        """Whether a source is nearly the same as one of these."""
        words = _words(source)
        return any(_common(words, other) >= _NEARLY_SAME for word in words for other in self._with.get(word, ()))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def _common(words: frozenset[str], others: frozenset[str]) -> float:
    """The number of common words, as a share of all."""
    return len(words & others) / max(1, len(words | others))


def _useful(tuning: list[SegmentPair], reported: list[SegmentPair]) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """Two halves, or nothing if one of them is too small."""
    return (tuning, reported) if min(len(tuning), len(reported)) >= MIN_HELD_OUT // 4 else ([], [])


def _hashed(pairs: Iterable[SegmentPair], text: hashlib._Hash) -> Iterator[SegmentPair]:
    for pair in pairs:
        line = f"{len(pair.source)} {len(pair.target)} {pair.source}{pair.target}{pair.origin}\n"
        text.update(line.encode("utf-8", "surrogatepass"))
        yield pair
