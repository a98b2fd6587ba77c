"""A decoder state of fixed shape at fixed addresses, so that a step on a GPU can be captured once and replayed.

Slots and their mask are as in `knnmt.engine.state`. Every row has the same length, and the device counts the position
of the newest token. A replayed step knows neither the batch nor its progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from knnmt.engine.base import SpecialTokens
from knnmt.engine.state import Admitted

Shared = TypeVar("Shared")


class FixedMemory:
    """Memory for the decoder states of one batch after another.

    slots: (layers, sentences, capacity, 2, heads, head_dim), zero if empty: attention multiplies hidden slots by 0
    visible: (sentences, width, capacity), 0 if a row sees a slot and -inf if it does not
    cross: a layer's keys and values of the source, (sentences, source, 2, heads, head_dim)
    cross_mask: (sentences, source)
    newest: (1 + width,), the position of the tokens of the next step, then their slots, which are side by side
    own: (width, width), the mask of new tokens over the new slots: each sees its own. It is not the shared `own_slots`,
        which others may read before the stream that made it has finished it
    """

    def __init__(
        self, layer_heads: tuple[int, int, int], sentences: int, width: int, capacity: int, source: int, like: Tensor
    ) -> None:
        layers, heads, head_dim = layer_heads
        self.layer_heads = layer_heads
        self.slots = like.new_zeros((layers, sentences, capacity, 2, heads, head_dim))
        self.visible = like.new_full((sentences, width, capacity), float("-inf"))
        self._cross = like.new_zeros((layers, sentences, source, 2, heads, head_dim))
        self.cross = list(self._cross)
        self.cross_mask = like.new_zeros((sentences, source))
        self._first = torch.tensor([0, *range(width)], device=like.device)
        self.newest = self._first.clone()
        self.own = like.new_full((width, width), float("-inf")).fill_diagonal_(0)
        self._advance = torch.tensor([1, *[width] * width], device=like.device)
        self.width = width

    @property
    def sentences(self) -> int:
        return self.visible.shape[0]

    @property
    def capacity(self) -> int:
        return self.visible.shape[2]

    @property
    def source(self) -> int:
        return self.cross_mask.shape[1]

    def begin(self, cross: Sequence[Tensor], mask: Tensor) -> None:
        """Load the sources of a batch; mask (sentences, source): the `cross_mask` of the same sentences."""
        sentences, source = mask.shape
        for mine, new in zip(self.cross, cross, strict=True):
            mine[:sentences, :source] = new
        self.cross_mask[:sentences, :source] = mask
        self.visible[:sentences].fill_(float("-inf"))
        self.visible[:sentences, :, : self.width] = self.own
        self.newest.copy_(self._first)

    def advance(self, visible: Tensor) -> None:
        """Make room for the tokens of the next step; visible: the part of `visible` that it sees."""
        self.newest += self._advance
        visible.index_copy_(2, self.newest[1:], self.own.expand(len(visible), -1, -1))

    def keep(self, rows: Tensor, source: int, used: int) -> None:
        """The new sentence i is the old rows[i]."""
        count, seen = len(rows), used + self.width
        self.slots[:, :count, :used] = self.slots[:, rows, :used]
        self.visible[:count, :, :seen] = self.visible[rows, :, :seen]
        for cross in self.cross:
            cross[:count, :source] = cross[rows, :source]
        self.cross_mask[:count] = self.cross_mask[rows]

    def compact(self, sentences: int, used: int) -> int:
        """Drop the slots that no row sees any more, and return the number left. This waits for the device."""
        visible = self.visible[:sentences, :, :used]
        alive = (visible == 0).any(1)
        count = int(alive.sum(1).max())
        order = alive.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :count]
        rows = torch.arange(sentences, device=order.device)[:, None]
        self.slots[:, :sentences, :count] = self.slots[:, rows, order]
        seen = visible.gather(2, order[:, None].expand(-1, self.width, -1))
        self.visible[:sentences].fill_(float("-inf"))
        self.visible[:sentences, :, :count] = seen
        self.visible[:sentences, :, count : count + self.width] = self.own
        self.newest[1:] = torch.arange(count, count + self.width, device=order.device)
        return count

    def larger(self, capacity: int) -> FixedMemory:
        """The same contents with more slots."""
        like = self.visible
        more = FixedMemory(self.layer_heads, self.sentences, self.width, capacity, self.source, like)
        more.slots[:, :, : self.capacity] = self.slots
        more.visible[:, :, : self.capacity] = self.visible
        more._cross, more.cross = self._cross, self.cross
        more.cross_mask, more.newest = self.cross_mask, self.newest
        return more


class FixedState:
    """The part of a `FixedMemory` that a step sees: the first `sentences`, `extent` slots and `source` positions.

    newest: as in `FixedMemory`
    visible: (sentences, width, extent)
    """

    def __init__(self, memory: FixedMemory, sentences: int, extent: int, source: int) -> None:
        self._memory = memory
        self.width = memory.width
        self.sentences = sentences
        self.slots = memory.slots[:, :sentences, :extent]
        self.cross = [cross[:sentences, :source] for cross in memory.cross]
        self.cross_mask = memory.cross_mask[:sentences, None, None, :source]
        self.newest = memory.newest
        self.visible = memory.visible[:sentences, :, :extent]

    def admit(self, m: int) -> Admitted:
        """What the tokens of the next step see, one new token per row. There is room for them already."""
        assert m == 1, "a fixed state takes one token per row"  # noqa: S101
        places = self.newest[1:]
        return Admitted(self.newest[:1], self.visible[:, None], (slice(None), places), places[None])

    def advance(self, parents: Tensor) -> None:
        """Make room for the next tokens; parents (sentences, width): row w continues the old row parents[:, w]."""
        self.visible.copy_(self.visible.gather(1, parents[..., None].expand_as(self.visible)))
        self._memory.advance(self.visible)


@runtime_checkable
class GraphEngine(Protocol):
    """The interface of an engine whose steps can be captured. `base.Engine` describes the members of the same names.

    None of its methods waits for the device or depends on computed values.
    """

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def special_tokens(self) -> SpecialTokens: ...

    def fixed_memory(self, sentences: int, width: int, capacity: int, source: int) -> FixedMemory:
        """Memory for decoder states whose steps can be captured."""

    def encode_padded(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """tokens (sentences, source) -> states (sentences, source, dim).

        mask (sentences, 1, 1, source): -inf for padding, else 0; None without padding
        """

    def source_attention(self, states: Tensor) -> list[Tensor]:
        """Each layer's keys and values of the source, (sentences, source, 2, heads, head_dim), from encoder states."""

    def step(self, state: FixedState, tokens: Tensor, /) -> Tensor:
        """tokens (sentences, width, m) -> representations (sentences, width, m, dim); m is 1."""

    def scores(self, representations: Tensor, /) -> Tensor:
        """(..., dim) -> (..., vocabulary), before the softmax, in the type of the weights."""

    def log_probabilities(self, representations: Tensor, /) -> Tensor:
        """(..., dim) -> (..., vocabulary), float32."""

    def get_or_make(self, kind: type[Shared]) -> Shared:
        """The one object of this class that belongs to the weights. The first call makes it.

        Decoding keeps its buffers here. Engines with the same weights share them; the last engine frees them.
        """
