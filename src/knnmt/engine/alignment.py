"""Word alignment from a model's own attention: the source token that each token of a given translation comes from."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.engine.rows import Rows
from knnmt.engine.sending import sent


def align(
    cross_attention: Tensor,
    sources: Sequence[Sequence[int]],
    target_lengths: Sequence[int] | NDArray[np.int64],
    frame: Collection[int],
) -> Tensor:
    """(sentences, target): for each target token the position of its source token; padding has no meaning.

    cross_attention (sentences, target, source), as `knnmt.engine.forced.force` gives it
    frame: the source tokens that every sentence has and that are not text: the end token, language codes

    A target token is aligned with the source token that the last layer attends to most in the step that predicts it.
    `docs/fast.md` compares other layers, the step that takes the token as input, and an aligner. Models rest attention
    on the frame, so no word is aligned with it; only the end of a target aligns with the last token of its source.
    """
    device = cross_attention.device
    rows = Rows.of(sources)
    no_text = torch.from_numpy(np.isin(rows.padded(-1), [-1, *frame]))
    ends = sent(torch.from_numpy(rows.lengths), device)[:, None] - 1
    lasts = sent(torch.from_numpy(np.asarray(target_lengths)), device)[:, None] - 1
    places = cross_attention[..., : rows.longest].masked_fill(sent(no_text, device)[:, None], -1).argmax(-1)
    return torch.where(torch.arange(cross_attention.shape[1], device=device) == lasts, ends, places)
