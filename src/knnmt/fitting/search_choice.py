"""Chooses how a store is searched, as a whole or by a number of segments for each sentence, by the loss of each.

The cost of search by segment does not grow with the store, and it needs no index. So of the kinds that lose hardly more
than the best one, the one with the fewest entries is chosen. Each is judged with its own k, T and λ. A small
store is always searched as a whole: this costs little, and segments lost BLEU in stores of 1,000 and 4,000 pairs, even
where their loss was lower (docs/results/segments.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knnmt.engine.base import Engine, State
from knnmt.fitting.development import Development, searched
from knnmt.fitting.tuning import Tuned, tune_positions
from knnmt.index.progress import Progress, ignore
from knnmt.retrieval.open_store import OpenStore

COUNTS = (64, 128, 256, 512)  # numbers of segments to try
MAX_LOST = 0.005  # nats per token
FROM_SENTENCES = 15_000  # the smallest measured store in which segments lose no BLEU
_PRODUCTS = 6_000_000_000  # positions times entries, about as many as for judging an index


@dataclass(frozen=True, slots=True)
class JudgedSearch:
    """A kind of search with the settings that fit it best. segments: None for the whole store"""

    segments: int | None
    tuned: Tuned

    @property
    def loss(self) -> float:
        """Nats per token over the compared positions."""
        return self.tuned.fading.fading_loss

    @property
    def name(self) -> str:
        """For people."""
        return "the whole store" if self.segments is None else f"{self.segments} segments"


@dataclass(frozen=True, slots=True)
class SearchChoice:
    """The loss of each kind of search, from the one with the fewest entries on; the last is search of the whole store.

    pairs: number of pairs that they were judged by
    """

    judged: Sequence[JudgedSearch]
    most_lost: float
    pairs: int

    @property
    def chosen(self) -> JudgedSearch:
        """The first that loses hardly more than the best."""
        best = min(each.loss for each in self.judged)
        return next(each for each in self.judged if each.loss <= best + self.most_lost)

    @property
    def whole(self) -> JudgedSearch:
        """Search of the whole store."""
        return self.judged[-1]

    @property
    def in_words(self) -> str:
        """One line for people."""
        losses = ", ".join(f"{each.loss:.4f} with {each.name}" for each in self.judged)
        how = f"by {self.chosen.name}" if self.chosen.segments else "of the whole store"
        return f"{how}; loss {losses}"


def counts_for(opened: OpenStore, from_sentences: int = FROM_SENTENCES) -> Sequence[int]:
    """How many segments are worth trying for a store; none if it has fewer sentences than `from_sentences`."""
    return COUNTS if opened.datastore.manifest.live_sentences >= from_sentences else ()


def choose_search(
    engine: Engine[State],
    opened: OpenStore,
    passed: Development,
    most_lost: float = MAX_LOST,
    progress: Progress = ignore,
    counts: Sequence[int] | None = None,
    positions: tuple[int, int] = (6_000, 1_000),
) -> SearchChoice | None:
    """Judge each kind of search by some positions of development text; None if the store is too small for segments.

    passed: the text after its forced pass, whatever neighbours it has
    progress: is called with the number of kinds judged, and the total
    counts: how many segments to try, by default `counts_for` the store
    positions: at most and at least so many are judged
    """
    counts = counts_for(opened) if counts is None else counts
    if not counts:
        return None
    most, least = positions
    some = passed.spread(min(most, max(least, _PRODUCTS // max(1, opened.datastore.manifest.entries))))
    ways: list[int | None] = [*counts, None]
    judged = []
    for done, way in enumerate(ways):
        progress(done, len(ways))
        judged.append(judge(engine, opened, some, way))
    progress(len(ways), len(ways))
    return SearchChoice(tuple(judged), most_lost, some.pairs)


def judge(engine: Engine[State], opened: OpenStore, passed: Development, segments: int | None) -> JudgedSearch:
    """Judge one kind of search with its own k, T and λ."""
    positions = searched(engine, opened, passed, segments).positions()
    return JudgedSearch(segments, tune_positions(positions, way=segments))
