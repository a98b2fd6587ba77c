"""Word alignment from attention, against plain loops."""

from __future__ import annotations

import torch

from knnmt.engine.alignment import align

CODE, END = 1, 2


def test_tokens_align_with_what_the_last_layer_attends_to_and_ends_with_the_last() -> None:
    sources = [[7, 5, 9, 4, END], [END], [CODE, 8, 6, END], [8, END, CODE], [CODE, END]]
    targets = [4, 3, 1, 6, 2]
    attention = torch.rand(5, 6, 5, generator=torch.Generator().manual_seed(0))
    attention[2, :, 0] = attention[3, :, 1] = 2  # where real models rest their attention
    found = align(attention, sources, targets, {CODE, END})
    for sentence, (source, target) in enumerate(zip(sources, targets, strict=True)):
        words = [place for place, token in enumerate(source) if token not in (CODE, END)] or [0]
        for place in range(target):
            expected = max(words, key=attention[sentence, place].tolist().__getitem__)
            assert int(found[sentence, place]) == (len(source) - 1 if place == target - 1 else expected)
