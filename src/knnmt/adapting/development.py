"""Development text after one forced pass: each position's state, the model's probability of its token, its neighbours.

Settings are tuned on these alone, so the model and the index run only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from knnmt.calibration.likelihood import Positions
from knnmt.config import FastConfig, SearchScope
from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.base import Engine, State
from knnmt.engine.forced import fitting_tokens, force_text
from knnmt.errors import InputError
from knnmt.progress import ignore
from knnmt.retrieval.neighbours import LogCounts, Neighbours
from knnmt.retrieval.open_store import OpenStore

MAX_NEIGHBOURS = 64
_ROWS = 512
_SENTENCES = 16  # sentences whose small stores are searched together


@dataclass(frozen=True, slots=True)
class Development:
    """Every position of some pairs, sentence by sentence, on the CPU.

    states: (rows, the store's dim) float32, in the form of queries
    tokens: (rows,), the text's own
    base: (rows,) float64, the model's own probabilities of these
    neighbours: (rows, k), the results of the search; a token is -1 if there is no neighbour
    log_counts: of how many entries each neighbour stands for
    sentences: (rows,), counted from 0; sources: their token ids
    """

    states: Tensor
    tokens: Tensor
    base: Tensor
    neighbours: Neighbours
    log_counts: LogCounts
    sentences: Tensor
    sources: Sequence[Sequence[int]]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.sources)

    def __len__(self) -> int:
        return len(self.tokens)

    def positions(self) -> Positions:
        """The positions, for computing likelihoods."""
        matches = self.neighbours.tokens == self.tokens[:, None]
        return Positions(self.base, self.neighbours.distances_sq, matches, self.sentences, self.log_counts)

    def spread(self, rows: int) -> Development:
        """Whole sentences, evenly chosen, with at most `rows` positions; at least one sentence."""
        if len(self) <= rows:
            return self
        lengths = torch.bincount(self.sentences)
        count = max(1, rows * self.pairs // len(self))
        while count > 1 and int(lengths[_places(count, self.pairs)].sum()) > rows:
            count -= 1
        chosen = _places(count, self.pairs)
        here = torch.isin(self.sentences, chosen).nonzero()[:, 0]

        def some_of(counts: Tensor | None) -> Tensor | None:
            return None if counts is None else counts[here]

        return Development(
            self.states[here],
            self.tokens[here],
            self.base[here],
            self.neighbours[here],
            (some_of(self.log_counts[0]), some_of(self.log_counts[1])),
            torch.arange(count).repeat_interleave(lengths[chosen]),
            [self.sources[number] for number in chosen.tolist()],
        )


def _places(count: int, of: int) -> Tensor:
    """`count` numbers below `of`, evenly spaced."""
    return torch.arange(count) * of // count


def search_text(
    engine: Engine[State],
    opened: OpenStore,
    pairs: Sequence[SegmentPair],
    k: int = MAX_NEIGHBOURS,
    progress: Callable[[int, int], None] = ignore,
    scope: SearchScope = None,
    look: Callable[[Tensor, Tensor], object] = ignore,
) -> Development:
    """Force the pairs that fit the model through it, and find the k nearest entries of every position.

    scope: the entries in which each sentence is searched
    look: is called with the model's states and log-probabilities of some positions after the others

    `progress` is called with the numbers of pairs and positions done; each counts twice: forced, searched.
    """
    passed = pass_over(engine, opened, pairs, progress, look)

    def done(rows: int) -> None:
        progress(len(pairs) + len(pairs) * rows // len(passed), len(passed) + rows)

    return searched(engine, opened, passed, scope, k, done)


def pass_over(
    engine: Engine[State],
    opened: OpenStore,
    pairs: Sequence[SegmentPair],
    progress: Callable[[int, int], None] = ignore,
    look: Callable[[Tensor, Tensor], object] = ignore,
) -> Development:
    """Force the pairs that fit the model through it, without a search. look: as in `search_text`"""
    if not opened.datastore.manifest.live_entries:
        raise InputError(f"{opened.datastore.path}: has no entries left to find neighbours among")
    forced = force_text(engine, pairs, progress)
    states: list[Tensor] = []
    base: list[Tensor] = []
    with torch.no_grad():
        for some, tokens in zip(
            torch.split(forced.representations, _ROWS), torch.split(forced.targets, _ROWS), strict=True
        ):
            here = some.to(engine.device)
            scores = engine.log_probabilities(here.to(engine.dtype))
            look(here, scores)
            states.append(opened.project(here).cpu())
            base.append(scores.cpu().gather(1, tokens[:, None])[:, 0])
    return Development(
        states=torch.cat(states),
        tokens=forced.targets,
        base=torch.cat(base).double().exp(),
        neighbours=Neighbours.none(len(forced.targets), 1, torch.device("cpu")),
        log_counts=(None, None),
        sentences=forced.sentences,
        sources=[source for source, _ in fitting_tokens(engine, pairs)],
    )


def searched(
    engine: Engine[State],
    opened: OpenStore,
    passed: Development,
    scope: SearchScope,
    k: int = MAX_NEIGHBOURS,
    progress: Callable[[int], None] = ignore,
) -> Development:
    """The text with the neighbours that another kind of search finds; the model does not run again.

    `progress` is called with the number of positions searched.
    """
    parts: list[Neighbours] = []
    if scope is None:
        searches = _in_whole_store(opened, passed, k)
    elif isinstance(scope, FastConfig):
        searches = _in_fast_stores(engine, opened, passed, scope, k)
    else:
        searches = _in_segments(opened, passed, scope, k)
    for neighbours in searches:
        parts.append(neighbours)
        progress(sum(map(len, parts)))
    ids = torch.cat([part.ids for part in parts])
    neighbours = Neighbours(
        torch.cat([part.distances_sq for part in parts]).cpu(),
        torch.cat([part.tokens for part in parts]).masked_fill(ids < 0, -1).cpu(),  # because 0 is also a token
        ids.cpu(),
    )
    return replace(passed, neighbours=neighbours, log_counts=opened.log_counts(ids))


def _in_whole_store(opened: OpenStore, passed: Development, k: int) -> Iterator[Neighbours]:
    for queries in torch.split(passed.states, _ROWS):
        yield opened.search(queries.to(opened.device), k)


def _in_segments(opened: OpenStore, passed: Development, segments: int, k: int) -> Iterator[Neighbours]:
    """The neighbours of the positions of one sentence after another, in the segments that cover its source best."""
    targets = torch.split(passed.states, torch.bincount(passed.sentences).tolist())
    for source, queries in zip(passed.sources, targets, strict=True):
        yield opened.snapshot.search_segments(source, segments, queries.to(opened.device), k)


def _in_fast_stores(
    engine: Engine[State], opened: OpenStore, passed: Development, fast: FastConfig, k: int
) -> Iterator[Neighbours]:
    """The neighbours of the positions, some sentences at a time, each in the small store of its sentence."""
    states_each = torch.split(passed.states, torch.bincount(passed.sentences).tolist())
    for first in range(0, passed.pairs, _SENTENCES):
        some, targets = passed.sources[first : first + _SENTENCES], states_each[first : first + _SENTENCES]
        encoded = engine.encode(some)
        states = [each[:length] for each, length in zip(encoded.states, encoded.lengths, strict=True)]
        stores = opened.sentence_stores(some, states, fast)
        padded = pad_sequence(list(targets), batch_first=True).to(opened.device)
        lengths = torch.tensor([len(each) for each in targets], device=opened.device)
        real = (torch.arange(padded.shape[1], device=opened.device) < lengths[:, None]).flatten()
        yield opened.neighbours(*stores.search(padded.flatten(0, 1), k))[real]
