"""Development text after one forced pass: each position's state, the model's probability of its token, its neighbours.

That is all that settings are tuned on, so that the model and the index are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from knnmt.config import FastConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.base import Engine, State
from knnmt.engine.forced import ForcedBlock, fitting_tokens, force_text
from knnmt.errors import InputError
from knnmt.fitting.likelihood import Positions, model_probabilities
from knnmt.retrieval.neighbours import LogCounts, Neighbours
from knnmt.retrieval.open_store import OpenStore

MAX_NEIGHBOURS = 64
_ROWS = 512
_SENTENCES = 16  # whose small stores are searched together


@dataclass(frozen=True, slots=True)
class Development:
    """Every position of some pairs, sentence by sentence, on the CPU.

    states: (rows, the store's dim) float32, as the store is searched with them
    tokens: (rows,), the text's own
    base: (rows,) float64, the model's own probabilities of these
    neighbours: (rows, k), from the store's index
    log_counts: of how many entries each neighbour stands for
    sentences: (rows,), counted from 0; pairs: how many there are
    """

    states: Tensor
    tokens: Tensor
    base: Tensor
    neighbours: Neighbours
    log_counts: LogCounts
    sentences: Tensor
    pairs: int

    def __len__(self) -> int:
        return len(self.tokens)

    def positions(self) -> Positions:
        """What likelihoods are made from."""
        return self.positions_with(self.neighbours, self.log_counts)

    def positions_with(self, neighbours: Neighbours, log_counts: LogCounts) -> Positions:
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

        def some_of(counts: Tensor | None) -> Tensor | None:
            return None if counts is None else counts[here]

        return Development(
            self.states[here],
            self.tokens[here],
            self.base[here],
            self.neighbours[here],
            (some_of(self.log_counts[0]), some_of(self.log_counts[1])),
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
    k: int = MAX_NEIGHBOURS,
    progress: Callable[[int, int], None] = lambda _pairs, _rows: None,
    fast: FastConfig | None = None,
    segments: int | None = None,
) -> Development:
    """Force the pairs that fit the model through it, and find the k nearest entries of every position.

    fast, segments: in entries of their own sentences, chosen as Fast kNN-MT does, or by segment

    `progress` is called with how many pairs and positions are done; in the end each counts twice: forced, searched.
    """
    if not opened.datastore.manifest.live_entries:
        raise InputError(f"{opened.datastore.path}: has no entries left to find neighbours among")
    forced = force_text(engine, pairs, progress)
    used, rows = int(forced.sentences[-1]) + 1, len(forced.targets)
    parts: list[Neighbours] = []
    states: list[Tensor] = []
    whole = ((queries, opened.search(queries, k)) for queries in _queries(engine, opened, forced.representations))
    own = fast is not None or segments is not None
    for queries, found in _in_own_stores(engine, opened, pairs, forced, fast, segments, k) if own else whole:
        parts.append(found)
        states.append(queries.cpu())
        searched = sum(map(len, parts))
        progress(len(pairs) + len(pairs) * searched // rows, rows + searched)
    ids = torch.cat([part.ids for part in parts])
    return Development(
        states=torch.cat(states),
        tokens=forced.targets,
        base=model_probabilities(engine, forced.representations, forced.targets),
        neighbours=Neighbours(
            torch.cat([part.distances_sq for part in parts]).cpu(),
            torch.cat([part.tokens for part in parts]).masked_fill(ids < 0, -1).cpu(),  # 0 is a token, too
            ids.cpu(),
        ),
        log_counts=opened.log_counts(ids),
        sentences=forced.sentences,
        pairs=used,
    )


def _queries(engine: Engine[State], opened: OpenStore, states: Tensor) -> Iterator[Tensor]:
    for some in torch.split(states, _ROWS):
        yield opened.project(some.to(engine.device))


def _in_own_stores(
    engine: Engine[State],
    opened: OpenStore,
    pairs: Sequence[SegmentPair],
    forced: ForcedBlock,
    fast: FastConfig | None,
    segments: int | None,
    k: int,
) -> Iterator[tuple[Tensor, Neighbours]]:
    """The positions of some sentences at a time, and what each finds in the small store of its sentence."""
    sources = [source for source, _ in fitting_tokens(engine, pairs)]
    of_sentences = torch.split(forced.representations, torch.bincount(forced.sentences).tolist())
    for first in range(0, len(sources), _SENTENCES):
        some, targets = sources[first : first + _SENTENCES], of_sentences[first : first + _SENTENCES]
        if fast is not None:
            encoded = engine.encode(some)
            states = [each[:length] for each, length in zip(encoded.states, encoded.lengths, strict=True)]
            stores = opened.sentence_stores(some, states, fast)
        else:
            stores = opened.snapshot.segment_stores(some, segments or 0)
        padded = pad_sequence(list(targets), batch_first=True).to(engine.device)
        lengths = torch.tensor([len(each) for each in targets], device=engine.device)
        real = (torch.arange(padded.shape[1], device=engine.device) < lengths[:, None]).flatten()
        queries = opened.project(padded.flatten(0, 1))
        yield queries[real], opened.neighbours(*stores.search(queries, k))[real]
