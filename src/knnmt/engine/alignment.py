"""Word alignment from a model's own attention: the source token that each token of a given translation comes from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def align(cross_attention: Tensor, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> Tensor:
    """(sentences, target): for each target token the place of its source token; padded places hold no meaning.

    cross_attention (sentences, layers, target, source), as `knnmt.engine.forced.force` gives it

    A token comes from what the last layer attends to most in the step that puts it out. `docs/retrieval.md` compares
    other layers, the step that takes the token as input, and an aligner. End tokens align with each other only.
    """
    attention = cross_attention[:, -1]
    device = attention.device
    ends = torch.tensor(source_lengths, device=device)[:, None] - 1
    lasts = torch.tensor(target_lengths, device=device)[:, None] - 1
    beyond = torch.arange(attention.shape[2], device=device) >= ends.clamp(min=1)  # a lone end token is all there is
    places = attention.masked_fill(beyond[:, None], -1).argmax(-1)
    return torch.where(torch.arange(attention.shape[1], device=device) == lasts, ends, places)
