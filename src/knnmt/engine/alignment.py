"""Word alignment from a model's own attention: the source token that each token of a given translation comes from."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from knnmt.engine.sending import padded_rows, sent


def align(
    cross_attention: Tensor, sources: Sequence[Sequence[int]], target_lengths: Sequence[int], frame: Collection[int]
) -> Tensor:
    """(sentences, target): for each target token the place of its source token; padded places hold no meaning.

    cross_attention (sentences, target, source), as `knnmt.engine.forced.force` gives it
    frame: the source tokens that are no text, which every sentence has: the end, language codes

    A token comes from what the last layer attends to most in the step that puts it out. `docs/fast.md` compares other
    layers, the step that takes the token as input, and an aligner. Models rest their attention on the frame: no
    word comes from there; only the end of a target aligns with the last token of its source.
    """
    device = cross_attention.device
    tokens = padded_rows(sources, -1)
    no_text = torch.from_numpy(np.isin(tokens, [-1, *frame]))
    ends = sent(torch.tensor([len(source) for source in sources]), device)[:, None] - 1
    lasts = sent(torch.tensor(target_lengths), device)[:, None] - 1
    places = cross_attention[..., : tokens.shape[1]].masked_fill(sent(no_text, device)[:, None], -1).argmax(-1)
    return torch.where(torch.arange(cross_attention.shape[1], device=device) == lasts, ends, places)
