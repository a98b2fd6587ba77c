"""Word alignment from a model's own attention: the source token that each token of a given translation comes from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def align(cross_attention: Tensor, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> Tensor:
    """(sentences, target): for each target token the place of its source token; padded places hold no meaning.

    cross_attention (sentences, layers, target, source), as `knnmt.engine.forced.force` gives it

    A token is aligned by what the last layer but one attends to most in the step that takes it as input: there the
    model knows which token it is, where in the step that puts it out it still chooses. End tokens align with each other
    only.
    """
    layer = max(0, cross_attention.shape[1] - 2)
    attention = cross_attention[:, layer].roll(-1, dims=1)
    places = torch.arange(attention.shape[2], device=attention.device)
    ends = torch.tensor(source_lengths, device=attention.device) - 1
    aligned = attention.masked_fill((places >= ends[:, None])[:, None], -1).argmax(-1)
    targets = torch.arange(attention.shape[1], device=attention.device)
    last = targets == torch.tensor(target_lengths, device=attention.device)[:, None] - 1
    # A source of an end token alone has nothing else to align with.
    return torch.where(last, ends[:, None], torch.minimum(aligned, (ends[:, None] - 1).clamp(min=0)))
