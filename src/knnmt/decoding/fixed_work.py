"""What decoding asks of a GPU: work whose shapes do not depend on what comes out, so that it can be replayed."""

from __future__ import annotations

import torch

from knnmt.decoding.constraints import Constraints
from knnmt.decoding.continuations import best_continuations
from knnmt.decoding.room import Room
from knnmt.engine.fixed_state import FixedState
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.plain import PlainSteps

_NEVER = float("-inf")


def begin(engine: TransformerEngine, room: Room, sentences: int, source: int) -> None:
    """Run the encoder over the room's sources, and put one empty hypothesis in front of each."""
    padded = torch.arange(source, device=engine.device) >= room.lengths[:sentences, None]
    mask = torch.zeros(padded.shape, dtype=engine.dtype, device=engine.device).masked_fill_(padded, _NEVER)
    states = engine.encode_padded(room.sources[:sentences, :source], mask[:, None, None])
    room.memory.begin(engine.source_attention(states), mask)
    room.tokens[:sentences].fill_(engine.special_tokens.decoder_start)
    room.scores[:sentences].fill_(_NEVER)
    room.scores[:sentences, 0] = 0.0


def advance(
    engine: TransformerEngine,
    room: Room,
    state: FixedState,
    constraints: Constraints,
    generated: int,
    retrieval: PlainSteps | None,
) -> None:
    """A step of beam search for the first sentences of the room: the search of `knnmt.decoding.beam`.

    generated: tokens before, as far as `Constraints.at` tells such numbers apart
    """
    tokens, scores = room.tokens[: state.sentences], room.scores[: state.sentences]
    beam = state.width
    representations = engine.step(state, tokens[..., None])[:, :, 0]
    if retrieval is None:
        log_probabilities = engine.log_probabilities(representations)
        before = scores
    else:
        with room.aside():
            found = retrieval.look(representations)
        log_probabilities = engine.log_probabilities(representations)
        room.join()
        before = retrieval.mix(found, log_probabilities, scores)
    constraints.apply(log_probabilities, generated, None)
    best, parents, candidates = best_continuations(before, log_probabilities, 2 * beam)
    going = best.masked_fill(candidates == engine.special_tokens.end, _NEVER).topk(beam).indices
    tokens.copy_(candidates.gather(1, going))
    scores.copy_(best.gather(1, going))
    state.reorder(parents.gather(1, going))
    room.chosen[: state.sentences] = torch.cat(
        [best.view(torch.int32), parents.int(), candidates.int(), going.int()], dim=1
    )
