"""Forced decoding: what the decoder's state was before each token of a given translation.

This is how a datastore gets its (key, value) pairs, and how development text is scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from knnmt.engine.base import Engine, State
from knnmt.errors import InputError


@dataclass(frozen=True, slots=True)
class ForcedBlock:
    """The entries of a batch of pairs, sentence by sentence, padding left out.

    representations: (entries, dim), the decoder's output before it saw the target token
    targets: (entries,), the target token, end tokens included
    sentences: (entries,), which pair of the batch an entry belongs to
    positions: (entries,), the place of the target token in its sentence
    encoder_states: (sentences, source, dim), on request
    cross_attention: (sentences, layers, target, source), averaged over heads, on request
    """

    representations: Tensor
    targets: Tensor
    sentences: Tensor
    positions: Tensor
    encoder_states: Tensor | None = None
    cross_attention: Tensor | None = None


def force(
    engine: Engine[State],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    encoder_states: bool = False,
    cross_attention: bool = False,
) -> ForcedBlock:
    """Decode the given targets of a batch in one pass. Token ids end in the end token on both sides."""
    longest = max(map(len, targets))
    for side, lengths in (("source", map(len, sources)), ("target", map(len, targets))):
        if (tokens := max(lengths)) > engine.max_positions:
            raise InputError(f"a {side} of {tokens} tokens does not fit the model's {engine.max_positions} positions")
    with torch.inference_mode():
        encoded = engine.encode(sources)
        special = engine.special_tokens
        padded = torch.tensor([[*target, *[special.padding] * (longest - len(target))] for target in targets])
        shifted = padded.roll(1, dims=1)
        shifted[:, 0] = special.decoder_start
        attention: list[Tensor] | None = [] if cross_attention else None
        representations = engine.step(engine.start(encoded), shifted[:, None].to(engine.device), attention)[:, 0]

        real = torch.arange(longest) < torch.tensor([len(target) for target in targets])[:, None]
        sentences, positions = real.nonzero(as_tuple=True)
        return ForcedBlock(
            representations=representations[real.to(engine.device)],
            targets=padded[real].to(engine.device),
            sentences=sentences,
            positions=positions,
            encoder_states=encoded.states if encoder_states else None,
            cross_attention=torch.stack([layer[:, 0] for layer in attention], dim=1) if attention else None,
        )
