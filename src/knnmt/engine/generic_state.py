"""The decoder state of `knnmt.engine.generic`: a cache of `transformers` with one row for every beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class GenericState:
    """See `knnmt.engine.base.DecoderState` for the contract.

    All rows of a `transformers` cache have the same length, but after `cut_back` those of a search may not. The cache
    holds the first `common` tokens, which all rows have. Further tokens of a row are fed again with its next tokens.

    source, source_mask: (sentences * width, source, dim) and (sentences * width, source)
    tokens: (sentences, width, longest), all tokens that the rows have consumed, with padding at the end
    """

    def __init__(self, source: Tensor, source_mask: Tensor, padding: int) -> None:
        from transformers import DynamicCache, EncoderDecoderCache

        sentences = source.shape[0]
        self.source = source
        self.source_mask = source_mask
        self.cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.tokens = torch.empty((sentences, 1, 0), dtype=torch.long, device=source.device)
        self.lengths = torch.zeros((sentences, 1), dtype=torch.long, device=source.device)
        self._padding = padding
        self._common = 0
        self._even = True  # known to the host: every row has `common` tokens

    @property
    def sentences(self) -> int:
        return self.lengths.shape[0]

    @property
    def width(self) -> int:
        return self.lengths.shape[1]

    def admit(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """Add new tokens (sentences, width, m); return the tokens to feed, and the places of the new tokens in them.

        fed: (sentences * width, count); places: (sentences, width, m)
        """
        m = new.shape[-1]
        places = torch.arange(m, device=new.device) + (self.lengths - self._common)[..., None]
        at = self.lengths[..., None] + torch.arange(m, device=new.device)
        room = new.new_full((*new.shape[:-1], m), self._padding)
        self.tokens = torch.cat([self.tokens, room], dim=-1).scatter(-1, at, new)
        self.lengths = self.lengths + m
        fed = self.tokens[..., self._common :].reshape(self.sentences * self.width, -1)
        return fed, places

    def settle(self) -> None:
        """After a pass, reduce the cache to the tokens that all rows have."""
        if self._even:
            self._common = self.tokens.shape[-1]
        else:
            self._trim()

    def _trim(self) -> None:
        shortest, longest = (int(bound) for bound in self.lengths.aminmax())
        self._even = shortest == longest
        self.tokens = self.tokens[..., :longest]
        held = self.cache.self_attention_cache.get_seq_length()
        if shortest < held:
            self.cache.self_attention_cache.crop(shortest - held)  # negative: the number of tokens to drop
        self._common = min(shortest, held)

    @torch.inference_mode()
    def widen(self, width: int) -> None:
        self.source = self.source.repeat_interleave(width, dim=0)
        self.source_mask = self.source_mask.repeat_interleave(width, dim=0)
        self.cache.batch_repeat_interleave(width)
        self.tokens = self.tokens.repeat(1, width, 1)
        self.lengths = self.lengths.repeat(1, width)

    @torch.inference_mode()
    def reorder(self, parents: Tensor) -> None:
        first = torch.arange(self.sentences, device=parents.device)[:, None] * self.width
        self.cache.self_attention_cache.reorder_cache((first + parents).flatten())  # beams of a sentence share a source
        self.tokens = self.tokens.gather(1, parents[..., None].expand(-1, -1, self.tokens.shape[-1]))
        self.lengths = self.lengths.gather(1, parents)

    @torch.inference_mode()
    def keep(self, sentences: Sequence[int]) -> None:
        kept = torch.tensor(sentences, device=self.lengths.device)
        rows = (kept[:, None] * self.width + torch.arange(self.width, device=kept.device)).flatten()
        self.source, self.source_mask = self.source[rows], self.source_mask[rows]
        self.cache.batch_select_indices(rows)
        self.tokens, self.lengths = self.tokens[kept], self.lengths[kept]

    @torch.inference_mode()
    def cut_back(self, lengths: Tensor) -> None:
        self.lengths = torch.minimum(self.lengths, lengths)
        self._trim()

    def compact(self) -> None:
        """There is nothing to free: the cache holds only tokens that its rows see."""
