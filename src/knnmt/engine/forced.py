"""Forced decoding: the decoder's state before each token of a given translation.

The (key, value) pairs of a datastore and the scores of development text come from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from knnmt.config import BatchingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.units import for_model
from knnmt.engine.any_shape import any_shape
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import batches_by_length
from knnmt.engine.rows import Rows
from knnmt.engine.sending import sent
from knnmt.errors import CheckpointError, InputError
from knnmt.progress import ignore

_SCORES = {"cpu": 1 << 21, "cuda": 1 << 27}  # rows times vocabulary in one computation
_BATCH_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 15}  # per side, with padding: the fastest size of a pass


@dataclass(frozen=True, slots=True)
class ForcedBlock:
    """The entries of a batch of pairs, sentence by sentence, without padding.

    representations: (entries, dim), the decoder's output before it saw the target token
    targets: (entries,), the target token, end tokens included
    sentences: (entries,), the pair of the batch that an entry belongs to
    positions: (entries,), the position of the target token in its sentence
    encoder_states: (sentences, source, dim), on request
    cross_attention: (sentences, target, source), of the last layer, averaged over heads, on request
    """

    representations: Tensor
    targets: Tensor
    sentences: Tensor
    positions: Tensor
    encoder_states: Tensor | None = None
    cross_attention: Tensor | None = None


def pass_batching(engine: Engine[State]) -> BatchingConfig:
    """The best batching of pairs for forced passes on the engine's device."""
    return BatchingConfig(sentences=None, tokens=_BATCH_TOKENS[engine.device.type])


def force(
    engine: Engine[State],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    encoder_states: bool = False,
    cross_attention: bool = False,
) -> ForcedBlock:
    """Decode the given targets of a batch in one pass. Token ids end in the end token on both sides."""
    source_rows, target_rows = Rows.of(sources), Rows.of(targets)
    for side, rows in (("source", source_rows), ("target", target_rows)):
        if (tokens := rows.longest) > engine.max_positions:
            raise InputError(f"a {side} of {tokens} tokens does not fit the model's {engine.max_positions} positions")
    if (token := int(target_rows.numbers.max(initial=0))) >= engine.vocabulary_size:
        raise CheckpointError(
            f"{engine.name}: its tokenizer gives token {token}, but its weights have only "
            f"{engine.vocabulary_size:,} tokens. Check "
            "that both are from the same checkpoint."
        )
    with torch.inference_mode(), any_shape(engine.device):
        encoded = engine.encode(source_rows)
        special = engine.special_tokens
        # NumPy, because PyTorch would use and wait for all cores, which other processes may need.
        padded = target_rows.padded(special.padding)
        beginning = np.tile(np.array(special.beginning), (len(padded), 1))
        fed = torch.from_numpy(np.concatenate([beginning, padded[:, :-1]], axis=1))
        before = beginning.shape[1] - 1  # given tokens after the first, such as a language code, make no entries
        attention: list[Tensor] | None = [] if cross_attention else None
        device = engine.device
        representations = engine.step(engine.start(encoded), sent(fed[:, None], device), attention)[:, 0, before:]

        sentences, positions = target_rows.places()
        places = sent(torch.from_numpy(sentences * padded.shape[1] + positions), device)
        return ForcedBlock(
            representations=representations.flatten(0, 1)[places],
            targets=sent(torch.from_numpy(target_rows.numbers.astype(np.int64)), device),
            sentences=torch.from_numpy(sentences),
            positions=torch.from_numpy(positions),
            encoder_states=encoded.states if encoder_states else None,
            cross_attention=attention[0][:, 0, before:] if attention else None,
        )


def score(
    engine: Engine[State], representations: Tensor, targets: Tensor, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """The model's own log-probability of each target token, float32, and whether the token was its first choice, bool.

    representations (entries, dim), targets (entries,), as `force` returns them
    rows: of one computation, because all rows times the whole vocabulary may not fit into memory; by default as many as
        suit the device
    """
    rows = rows or max(1, _SCORES[engine.device.type] // engine.vocabulary_size)
    found, first = [], []
    with torch.inference_mode():
        for some, wanted in zip(torch.split(representations, rows), torch.split(targets, rows), strict=True):
            scores = engine.log_probabilities(some)
            own = scores.gather(1, wanted[:, None])[:, 0]
            found.append(own)
            first.append(own >= scores.amax(1))
    return torch.cat(found), torch.cat(first)


def fitting_tokens(engine: Engine[State], pairs: Sequence[SegmentPair]) -> list[tuple[list[int], list[int]]]:
    """Source and target tokens of the pairs that fit the model, in their order."""
    seen = [for_model(pair) for pair in pairs]
    encoded = zip(
        engine.tokenizer.encode_sources([pair.source for pair in seen]),
        engine.tokenizer.encode_targets([pair.target for pair in seen]),
        strict=True,
    )
    fitting = [both for both in encoded if max(map(len, both)) <= engine.max_positions]
    if not fitting:
        raise InputError(f"no pair fits the model's {engine.max_positions} positions, of {len(pairs)} given")
    return fitting


def force_text(
    engine: Engine[State],
    pairs: Sequence[SegmentPair],
    progress: Callable[[int, int], None] = ignore,
) -> ForcedBlock:
    """Force all pairs that fit the model, in batches of similar length. The result is in their order, on the CPU.

    `sentences` numbers the pairs that fit. `progress` receives the number of pairs and of entries done.
    """
    fitting = fitting_tokens(engine, pairs)
    states: list[Tensor] = [torch.empty(0)] * len(fitting)
    done = entries = 0
    for batch in batches_by_length([max(map(len, both)) for both in fitting], pass_batching(engine)):
        block = force(engine, [fitting[i][0] for i in batch], [fitting[i][1] for i in batch])
        parts = torch.split(block.representations.cpu(), torch.bincount(block.sentences).tolist())
        for place, part in zip(batch, parts, strict=True):
            states[place] = part
        done, entries = done + len(batch), entries + len(block.targets)
        progress(done, entries)
    lengths = torch.tensor([len(target) for _, target in fitting])
    return ForcedBlock(
        representations=torch.cat(states),
        targets=torch.tensor([token for _, target in fitting for token in target]),
        sentences=torch.arange(len(fitting)).repeat_interleave(lengths),
        positions=torch.cat([torch.arange(length) for length in lengths.tolist()]),
    )
