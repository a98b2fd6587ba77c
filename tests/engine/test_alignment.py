"""Word alignment from attention, against plain loops."""

from __future__ import annotations

import torch

from knnmt.engine.alignment import align


def test_tokens_align_with_what_the_last_layer_attends_to_and_end_tokens_with_each_other() -> None:
    sources, targets = [5, 1, 3, 2], [4, 3, 1, 6]
    attention = torch.rand(4, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    found = align(attention, sources, targets)
    for sentence, (source, target) in enumerate(zip(sources, targets, strict=True)):
        for place in range(target):
            words = attention[sentence, 2, place, : source - 1].tolist() or [1.0]
            expected = source - 1 if place == target - 1 else words.index(max(words))
            assert int(found[sentence, place]) == expected
