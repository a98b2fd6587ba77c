"""The inputs of trained combiners for held-out text: one forced pass and one search, kept for all methods and seeds.

The model is frozen, so the neighbours of a text do not change: they are searched once, not at every update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from knnmt.adapting.development import Development, searched
from knnmt.calibration.likelihood import Positions, so_far
from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.base import Engine, State
from knnmt.engine.forced import fitting_tokens, force_text
from knnmt.errors import InputError
from knnmt.index.entries import Entries
from knnmt.retrieval.neighbours import LogCounts, Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.step import SentenceSoFar
from knnmt.retrieval.trained.seen import LEAST, best_of, distinct_counts

_ROWS = 512


@dataclass(frozen=True, slots=True, eq=False)
class CombinerRows:
    """Every position of some pairs, sentence by sentence, on the CPU. It is `Seen` for all of them.

    tokens: -1 if there is no neighbour; ids: of the neighbours
    targets: (rows,), the text's own tokens; base: (rows,), the model's log-probabilities of these
    sentences: (rows,), counted from 0; far, steps: (rows,), of `sentence`
    kept: (keys, d), the distinct keys of all neighbours, of which `ids` are the places then (`with_keys_on`)
    counted: which of both kinds of counts the weights include
    """

    distances_sq: Tensor
    tokens: Tensor
    distinct: Tensor
    ids: Tensor
    both_counts: LogCounts
    use_counts: bool
    queries: Tensor
    said_there: Tensor
    said_here: Tensor
    best: Tensor
    targets: Tensor
    base: Tensor
    sentences: Tensor
    far: Tensor
    steps: Tensor
    entries: Entries
    kept: Tensor | None = None

    @property
    def sentence(self) -> SentenceSoFar:
        return SentenceSoFar(self.far, self.steps)

    @property
    def log_counts(self) -> Tensor | None:
        return self.both_counts[0 if self.use_counts else 1]

    @property
    def keys(self) -> Tensor:
        """(rows, k, d), read on demand: for a whole text they would be large."""
        if self.kept is not None:
            return self.kept[self.ids.clamp(min=0)].float().masked_fill((self.ids < 0)[:, :, None], 0)
        ids = self.ids.flatten()
        keys = torch.zeros((len(ids), self.entries.dim))
        there = (ids >= 0).nonzero()[:, 0]
        keys[there] = torch.from_numpy(self.entries.keys_of(ids[there].numpy())).float()
        return keys.view(*self.ids.shape, -1)

    @property
    def matches(self) -> Tensor:
        """(rows, k) bool, whether a neighbour has the text's token."""
        return self.tokens == self.targets[:, None]

    @property
    def pairs(self) -> int:
        return int(self.sentences[-1]) + 1

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: Tensor) -> CombinerRows:
        """Some rows. Their sentences keep their numbers."""
        of_rows = {name: getattr(self, name)[rows] for name in (*_OF_NEIGHBOURS, *_OF_ROWS)}
        counts, repeats = (None if each is None else each[rows] for each in self.both_counts)
        return replace(self, **of_rows, both_counts=(counts, repeats))

    def first(self, k: int) -> CombinerRows:
        """The same with the k nearest neighbours only."""
        counts, repeats = (None if each is None else each[:, :k] for each in self.both_counts)
        fewer = {name: getattr(self, name)[:, :k] for name in _OF_NEIGHBOURS}
        return replace(self, **fewer, both_counts=(counts, repeats))

    def without_keys(self) -> CombinerRows:
        """The same without what only a network needs that sees keys: at every update these would be most of a copy."""
        return replace(self, queries=self.queries[:, :0], ids=self.ids[:, :0])

    def with_keys_on(self, device: torch.device) -> CombinerRows:
        """The same on a device, with all keys there, for a network that needs them at every update."""
        ids, places = torch.unique(self.ids.clamp(min=0), return_inverse=True)
        moved = {name: getattr(self, name).to(device) for name in (*_OF_NEIGHBOURS, *_OF_ROWS)}
        moved["ids"] = places.masked_fill(self.ids < 0, -1).to(device)
        counts, repeats = (None if each is None else each.to(device) for each in self.both_counts)
        keys = torch.from_numpy(self.entries.keys_of(ids.numpy())).to(device)
        return replace(self, **moved, both_counts=(counts, repeats), kept=keys)

    def positions(self) -> Positions:
        """The positions, for likelihoods with other settings."""
        return Positions(self.base.double().exp(), self.distances_sq, self.matches, self.sentences, self.both_counts)


_OF_ROWS = ("queries", "best", "targets", "base", "sentences", "far", "steps")
_OF_NEIGHBOURS = ("distances_sq", "tokens", "distinct", "ids", "said_there", "said_here")


def collect_rows(
    engine: Engine[State],
    opened: OpenStore,
    pairs: Sequence[SegmentPair],
    k: int,
    segments: int | None,
    use_counts: bool = True,
    progress: Callable[[int, int], None] = lambda _pairs, _rows: None,
) -> CombinerRows:
    """Force the pairs that fit the model through it, and find the k nearest entries of every position.

    segments: search each sentence in this many segments; None for the whole store
    `progress` is called with the numbers of pairs and positions done; each counts twice: forced, searched.
    """
    store = opened.datastore
    if not store.manifest.live_entries:
        raise InputError(f"{store.path}: has no entries left to find neighbours among")
    forced = force_text(engine, pairs, progress)
    rows = len(forced.targets)
    states = torch.split(forced.representations, _ROWS)
    queries = torch.cat([opened.project(some.to(engine.device)).cpu() for some in states])
    passed = Development(
        states=queries,
        tokens=forced.targets,
        base=torch.zeros(rows, dtype=torch.float64),  # computed below, with the model's other outputs
        neighbours=Neighbours.none(rows, 1, torch.device("cpu")),
        log_counts=(None, None),
        sentences=forced.sentences,
        sources=[source for source, _ in fitting_tokens(engine, pairs)],
    )

    def done(count: int) -> None:
        progress(len(pairs) + len(pairs) * count // rows, rows + count)

    found = searched(engine, opened, passed, segments, k, done)
    near = found.neighbours
    known = near.tokens.clamp(min=0)
    here, best, base, distinct = [], [], [], []
    with torch.inference_mode():
        for start in range(0, rows, _ROWS):
            some = slice(start, start + _ROWS)
            scores = engine.log_probabilities(forced.representations[some].to(engine.device, engine.dtype)).cpu()
            here.append(scores.gather(1, known[some]).clamp(min=LEAST))
            base.append(scores.gather(1, forced.targets[some, None])[:, 0])
            best.append(best_of(scores))
            distinct.append(distinct_counts(near.tokens[some], near.ids[some] < 0))
    entries = opened.snapshot.index.entries
    sentence = so_far(near.distances_sq[:, 0].sqrt(), forced.sentences)
    there = entries.log_probabilities_of(near.ids.clamp(min=0)).masked_fill(near.ids < 0, 0).clamp(min=LEAST)
    return CombinerRows(
        distances_sq=near.distances_sq,
        tokens=near.tokens,
        distinct=torch.cat(distinct).clone(),
        ids=near.ids,
        both_counts=found.log_counts,
        use_counts=use_counts,
        queries=queries,
        said_there=there,
        said_here=torch.cat(here).clone(),
        best=torch.cat(best).clone(),
        targets=forced.targets,
        base=torch.cat(base).clone(),
        sentences=forced.sentences,
        far=sentence.distance,
        steps=sentence.steps,
        entries=entries,
    )
