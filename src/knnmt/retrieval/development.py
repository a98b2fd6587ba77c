"""Development text after one forced pass: each position's state, the model's probability of its token, its neighbours.

That is all that settings are tuned on, so that the model and the index are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.base import Engine, State
from knnmt.engine.forced import force_text
from knnmt.errors import InputError
from knnmt.retrieval.likelihood import Positions, model_probabilities
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.retriever import OpenStore

MOST_NEIGHBOURS = 64
_ROWS = 512


@dataclass(frozen=True, slots=True)
class Development:
    """Every position of some pairs, sentence by sentence, on the CPU.

    states: (rows, the store's dim) float32, as the store is searched with them
    tokens: (rows,), the text's own
    base: (rows,) float64, the model's own probabilities of these
    neighbours: (rows, k), from the store's index
    log_counts: (rows, k), of how many entries each neighbour stands for, or None where nothing was merged
    sentences: (rows,), counted from 0; pairs: how many there are
    """

    states: Tensor
    tokens: Tensor
    base: Tensor
    neighbours: Neighbours
    log_counts: Tensor | None
    sentences: Tensor
    pairs: int

    def __len__(self) -> int:
        return len(self.tokens)

    def positions(self) -> Positions:
        """What likelihoods are made from."""
        return self.positions_with(self.neighbours, self.log_counts)

    def positions_with(self, neighbours: Neighbours, log_counts: Tensor | None) -> Positions:
        """The same with what another search found; tokens must be -1 where there is no neighbour."""
        matches = neighbours.tokens == self.tokens[:, None]
        return Positions(self.base, neighbours.distances_sq, matches, self.sentences, log_counts)

    def spread(self, rows: int) -> Development:
        """Whole sentences from all over it with at most `rows` positions, but one sentence at least."""
        if len(self) <= rows:
            return self
        lengths = torch.bincount(self.sentences)
        count = max(1, rows * self.pairs // len(self))
        while count > 1 and int(lengths[_places(count, self.pairs)].sum()) > rows:
            count -= 1
        chosen = _places(count, self.pairs)
        here = torch.isin(self.sentences, chosen).nonzero()[:, 0]
        return Development(
            self.states[here],
            self.tokens[here],
            self.base[here],
            self.neighbours[here],
            None if self.log_counts is None else self.log_counts[here],
            torch.arange(count).repeat_interleave(lengths[chosen]),
            count,
        )


def _places(count: int, of: int) -> Tensor:
    """So many numbers below `of`, evenly apart."""
    return torch.arange(count) * of // count


def develop(
    engine: Engine[State],
    opened: OpenStore,
    pairs: Sequence[SegmentPair],
    k: int = MOST_NEIGHBOURS,
    progress: Callable[[int, int], None] = lambda _pairs, _rows: None,
) -> Development:
    """Force the pairs that fit the model through it, and find the k nearest entries of every position.

    `progress` is called with how many pairs and positions are done; in the end each counts twice: forced, searched.
    """
    if not opened.store.manifest.live_entries:
        raise InputError(f"{opened.store.path}: has no entries left to find neighbours among")
    forced = force_text(engine, pairs, progress)
    used, rows = int(forced.sentences[-1]) + 1, len(forced.targets)
    parts: list[Neighbours] = []
    states: list[Tensor] = []
    for some in torch.split(forced.representations, _ROWS):
        queries = opened.project(some.to(engine.device))
        parts.append(opened.search(queries, k))
        states.append(queries.cpu())
        searched = sum(map(len, parts))
        progress(len(pairs) + len(pairs) * searched // rows, rows + searched)
    ids = torch.cat([part.ids for part in parts])
    counts = opened.counts(ids)
    return Development(
        states=torch.cat(states),
        tokens=forced.targets,
        base=model_probabilities(engine, forced.representations, forced.targets),
        neighbours=Neighbours(
            torch.cat([part.distances_sq for part in parts]).cpu(),
            torch.cat([part.tokens for part in parts]).masked_fill(ids < 0, -1).cpu(),  # 0 is a token, too
            ids.cpu(),
        ),
        log_counts=None if counts is None else counts.log().cpu(),
        sentences=forced.sentences,
        pairs=used,
    )
