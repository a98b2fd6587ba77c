"""The key-value cache of a batch, designed so that beams never copy it.

The rows of a sentence share one list of slots. A step appends one slot for each row and token, and a mask says which
slots a row sees. Reordering beams moves rows of the mask (a few numbers); a cache per beam would have to move keys and
values. `compact` drops slots that no row sees any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_FIRST_CAPACITY = 96


def _copied(to: Tensor, come: Tensor) -> None:
    """Copy numbers of the same type, on a CPU in one thread.

    PyTorch's threads would wait for each other, for milliseconds if another program has the core of one.
    """
    if to.device.type == "cpu":
        np.copyto(_numbers(to), _numbers(come))
    else:
        to.copy_(come)


def _taken(tensor: Tensor, *places: Tensor) -> Tensor:
    """tensor[places], as `_copied`."""
    if tensor.device.type != "cpu":
        return tensor[places]
    return torch.from_numpy(_numbers(tensor)[tuple(each.numpy() for each in places)]).view(tensor.dtype)


def _numbers(tensor: Tensor) -> npt.NDArray[Any]:
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()  # NumPy has no bfloat16


def _move(tensors: Sequence[Tensor], sentences: Sequence[int]) -> None:
    """Sentence i of each tensor becomes its sentences[i]."""
    moved = [place for place, old in enumerate(sentences) if place != old]
    if not moved:
        return
    come = torch.tensor([sentences[place] for place in moved], device=tensors[0].device)
    for tensor in tensors:
        for place, new in zip(moved, _taken(tensor, come), strict=True):
            _copied(tensor[place], new)


@lru_cache(maxsize=64)
def own_slots(width: int, m: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(width * m, width * m): the mask of new tokens over the new slots: each sees its own row, up to itself."""
    row = torch.arange(width, device=device).repeat_interleave(m)
    place = torch.arange(m, device=device).repeat(width)
    seen = (row[:, None] == row[None, :]) & (place[None, :] <= place[:, None])
    return torch.zeros(seen.shape, device=device, dtype=dtype).masked_fill_(~seen, float("-inf"))


@dataclass(frozen=True, slots=True)
class Admitted:
    """Positions, mask and slots of the new tokens of a step.

    positions: the positions of the tokens in their texts, to be broadcast over (sentences, width, m)
    mask: (sentences, 1, width * m, slots)
    places: the slots of the new tokens, as an index into sentences and slots
    numbers: (sentences or 1, width * m), the same slots, if shapes are fixed
    """

    positions: Tensor
    mask: Tensor
    places: tuple[Tensor | slice, Tensor | slice]
    numbers: Tensor | None = None


class TransformerState:
    """Decoder state of `knnmt.engine.transformer`; see `knnmt.engine.base.DecoderState` for the contract.

    slots: (layers, sentences, capacity, 2, heads, head_dim), keys and values of consumed tokens
    visible: (sentences, width, capacity), 0 if a row sees a slot and -inf if it does not
    used: number of slots in use, known to the host, so that no step has to ask the device
    cross: a layer's keys and values of the source, (sentences, source, 2, heads, head_dim)
    cross_mask: (sentences, 1, 1, source), or None without padding
    sources: the number of source tokens of each sentence
    length: the number of tokens that each row has consumed
    """

    def __init__(
        self,
        cross: list[Tensor],
        cross_mask: Tensor | None,
        sources: Sequence[int],
        layer_heads: tuple[int, int, int],
    ) -> None:
        layers, heads, head_dim = layer_heads
        first = cross[0]
        sentences = first.shape[0]
        self.cross = cross
        self.cross_mask = cross_mask
        self.sources = list(sources)
        self.slots = first.new_empty((layers, sentences, _FIRST_CAPACITY, 2, heads, head_dim))
        self.visible = first.new_full((sentences, 1, _FIRST_CAPACITY), float("-inf"))
        self.length = 0
        self.used = 0

    @property
    def sentences(self) -> int:
        return self.visible.shape[0]

    @property
    def width(self) -> int:
        return self.visible.shape[1]

    def admit(self, m: int) -> Admitted:
        """Make room for m new tokens per row, and return what they see."""
        new = self.width * m
        positions = torch.arange(self.length, self.length + m, device=self.visible.device)
        before = self.make_room(m)
        after = self.used
        own = own_slots(self.width, m, self.visible.device, self.visible.dtype)
        if m == 1:
            self.visible[:, :, before:after] = own
            mask = self.visible[:, :, :after]
        else:
            earlier = self.visible[:, :, None, :before].expand(-1, -1, m, -1).reshape(self.sentences, new, before)
            mask = torch.cat([earlier, own.expand(self.sentences, -1, -1)], dim=-1)
            self.visible[:, :, before:after] = own[m - 1 :: m]
        return Admitted(positions, mask[:, None], (slice(None), slice(before, after)))

    def make_room(self, m: int) -> int:
        """Reserve slots for m new tokens per row; return the first slot. The caller must fill and unmask them."""
        before = self.used
        self._reserve(before + self.width * m)
        self.used = before + self.width * m
        self.length += m
        return before

    @torch.inference_mode()
    def widen(self, width: int) -> None:
        self.visible = self.visible.repeat(1, width, 1)

    @torch.inference_mode()
    def reorder(self, parents: Tensor) -> None:
        seen = self.visible[:, :, : self.used]
        self.visible[:, :, : self.used] = seen.gather(1, parents[..., None].expand(-1, -1, self.used))

    @torch.inference_mode()
    def keep(self, sentences: Sequence[int]) -> None:
        count, slots = len(sentences), self.slots[:, :, : self.used].transpose(0, 1)
        _move([slots, self.visible, *self.cross], sentences)
        if self.cross_mask is not None:
            _move([self.cross_mask], sentences)
        self.slots = self.slots[:, :count]
        self.visible, self.sources = self.visible[:count], [self.sources[place] for place in sentences]
        self.cross = [tensor[:count] for tensor in self.cross]
        if self.cross_mask is not None:
            self.cross_mask = self.cross_mask[:count]

    @torch.inference_mode()
    def compact(self) -> None:
        alive = (self.visible[:, :, : self.used] == 0).any(1)
        count = int(alive.sum(1).max())
        if count == self.used:
            return
        order = alive.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :count]
        rows = torch.arange(self.sentences, device=order.device)[:, None]
        for slots in self.slots:  # of a layer
            _copied(slots[:, :count], _taken(slots, rows, order))
        self.visible[:, :, :count] = self.visible.gather(2, order[:, None].expand(-1, self.width, -1))
        self.used = count

    def _reserve(self, needed: int) -> None:
        capacity = self.visible.shape[2]
        if needed <= capacity:
            return
        capacity = max(needed, 2 * capacity)
        slots = self.slots.new_empty((*self.slots.shape[:2], capacity, *self.slots.shape[3:]))
        _copied(slots[:, :, : self.used], self.slots[:, :, : self.used])
        visible = self.visible.new_full((self.sentences, self.width, capacity), float("-inf"))
        visible[:, :, : self.used] = self.visible[:, :, : self.used]
        self.slots, self.visible = slots, visible
