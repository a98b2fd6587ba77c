"""The decoder state of `knnmt.engine.generic`: a cache of `transformers` with one row for every beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class GenericState:
    """See `knnmt.engine.base.DecoderState` for the contract.

    source, source_mask: (sentences * width, source, dim) and (sentences * width, source)
    """

    def __init__(self, source: Tensor, source_mask: Tensor) -> None:
        from transformers import DynamicCache, EncoderDecoderCache

        self.sentences, self.width = source.shape[0], 1
        self.source = source
        self.source_mask = source_mask
        self.cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())

    @torch.inference_mode()
    def widen(self, width: int) -> None:
        self.source = self.source.repeat_interleave(width, dim=0)
        self.source_mask = self.source_mask.repeat_interleave(width, dim=0)
        self.cache.batch_repeat_interleave(width)
        self.width = width

    @torch.inference_mode()
    def reorder(self, parents: Tensor) -> None:
        first = torch.arange(self.sentences, device=parents.device)[:, None] * self.width
        self.cache.self_attention_cache.reorder_cache((first + parents).flatten())  # beams of a sentence share a source

    @torch.inference_mode()
    def keep(self, sentences: Sequence[int]) -> None:
        kept = torch.tensor(sentences, device=self.source.device)
        rows = (kept[:, None] * self.width + torch.arange(self.width, device=kept.device)).flatten()
        self.source, self.source_mask = self.source[rows], self.source_mask[rows]
        self.cache.batch_select_indices(rows)
        self.sentences = len(sentences)

    def compact(self) -> None:
        """There is nothing to free: the cache holds only tokens that its rows see."""
