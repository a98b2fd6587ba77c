"""The inputs of trained combiners for held-out text: one forced pass and one search, for all methods and seeds.

The model is frozen, so the neighbours of a text do not change: they are searched once, not at every update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from knnmt import (
    Engine,
    Neighbours,
    OpenStore,
    Positions,
    RetrievalConfig,
    SeenInStep,
    SegmentPair,
    SentenceSoFar,
    Step,
    search_text,
)

_ROWS = 512
LogCounts = tuple[Tensor | None, Tensor | None]


@dataclass(frozen=True, slots=True, eq=False)
class CombinerRows:
    """Every position of some pairs, sentence by sentence, on the CPU. It is `Seen` for all of them.

    tokens: -1 if there is no neighbour; ids: of the neighbours
    targets: (rows,), the text's own tokens; base: (rows,), the model's log-probabilities of these
    sentences: (rows,), counted from 0; far, steps: (rows,), of `sentence`
    own_keys: (keys, d), the distinct keys of all neighbours, of which `ids` are the places then (`with_keys_on`)
    use_counts: which of both kinds of counts the weights include
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
    store: OpenStore
    own_keys: Tensor | None = None

    @property
    def sentence(self) -> SentenceSoFar:
        return SentenceSoFar(self.far, self.steps)

    @property
    def log_counts(self) -> Tensor | None:
        return self.both_counts[0 if self.use_counts else 1]

    @property
    def keys(self) -> Tensor:
        """(rows, k, d), read on demand: for a whole text they would be large."""
        if self.own_keys is not None:
            return self.own_keys[self.ids.clamp(min=0)].float().masked_fill((self.ids < 0)[:, :, None], 0)
        ids, entries = self.ids.flatten(), self.store.snapshot.index.entries
        keys = torch.zeros((len(ids), entries.dim))
        present = (ids >= 0).nonzero()[:, 0]
        keys[present] = torch.from_numpy(entries.keys_of(ids[present].numpy())).float()
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
        fields = {name: getattr(self, name)[rows] for name in (*_OF_NEIGHBOURS, *_OF_ROWS)}
        counts, repeats = (None if each is None else each[rows] for each in self.both_counts)
        return replace(self, **fields, both_counts=(counts, repeats))

    def first(self, k: int) -> CombinerRows:
        """These rows with the k nearest neighbours only."""
        counts, repeats = (None if each is None else each[:, :k] for each in self.both_counts)
        fewer = {name: getattr(self, name)[:, :k] for name in _OF_NEIGHBOURS}
        return replace(self, **fewer, both_counts=(counts, repeats))

    def without_keys(self) -> CombinerRows:
        """These rows without what only a network needs that sees keys, which would be most of every update's copy."""
        return replace(self, queries=self.queries[:, :0], ids=self.ids[:, :0])

    def with_keys_on(self, device: torch.device) -> CombinerRows:
        """These rows on a device, with all keys there, for a network that needs them at every update."""
        ids, places = torch.unique(self.ids.clamp(min=0), return_inverse=True)
        moved = {name: getattr(self, name).to(device) for name in (*_OF_NEIGHBOURS, *_OF_ROWS)}
        moved["ids"] = places.masked_fill(self.ids < 0, -1).to(device)
        counts, repeats = (None if each is None else each.to(device) for each in self.both_counts)
        keys = torch.from_numpy(self.store.snapshot.index.entries.keys_of(ids.numpy())).to(device)
        return replace(self, **moved, both_counts=(counts, repeats), own_keys=keys)

    def positions(self) -> Positions:
        """The positions, for likelihoods with other settings."""
        return Positions(self.base.double().exp(), self.distances_sq, self.matches, self.sentences, self.both_counts)


_OF_ROWS = ("queries", "best", "targets", "base", "sentences", "far", "steps")
_OF_NEIGHBOURS = ("distances_sq", "tokens", "distinct", "ids", "said_there", "said_here")


def collect_rows(
    engine: Engine[Any],
    store: OpenStore,
    pairs: Sequence[SegmentPair],
    k: int,
    segments: int | None,
    use_counts: bool = True,
    progress: Callable[[int, int], None] = lambda _pairs, _rows: None,
) -> CombinerRows:
    """Force the pairs that fit the model through it, and find the k nearest entries of every position.

    Args:
        segments: search each sentence in this many segments; None for the whole store.
        progress: is called with the numbers of pairs and positions done; each counts twice: forced, searched.
    """
    states: list[Tensor] = []
    text = search_text(
        engine, store, pairs, k, progress, scope=segments, look=lambda some, _scores: states.append(some.cpu())
    )
    representations, positions = torch.cat(states), text.positions()
    sentence, config = positions.so_far, RetrievalConfig(k, 0.5, 1.0, use_counts=use_counts)
    seen: list[dict[str, Tensor]] = []
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(text)), _ROWS):
            here = representations[rows]
            scores = engine.log_probabilities(here.to(engine.device, engine.dtype)).cpu()
            so_far = replace(sentence, distance=sentence.distance[rows], steps=sentence.steps[rows])
            step = Step(store.snapshot, config, here, text.states[rows], so_far, scores, rows[:, None])
            near = text.neighbours[rows]
            known = SeenInStep(step, Neighbours(near.distances_sq, near.tokens.clamp(min=0), near.ids), k)
            seen.append({name: getattr(known, name) for name in ("distinct", "said_there", "said_here", "best")})
    return CombinerRows(
        distances_sq=text.neighbours.distances_sq,
        tokens=text.neighbours.tokens,
        ids=text.neighbours.ids,
        both_counts=text.log_counts,
        use_counts=use_counts,
        queries=text.states,
        **{name: torch.cat([each[name] for each in seen]).clone() for name in seen[0]},
        targets=text.tokens,
        base=text.base.clamp(min=1e-300).log().float(),
        sentences=text.sentences,
        far=sentence.distance,
        steps=sentence.steps,
        store=store,
    )
