"""Greedy search: the best token at every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import with_gaps_filled


def greedy_search(
    engine: Engine[State], sources: Sequence[Sequence[int]], config: DecodingConfig
) -> list[list[Hypothesis]]:
    """One hypothesis for each source, in a list of its own, as `beam_search` returns them."""
    end = engine.special_tokens.end
    constraints = Constraints(config, end, engine.device)
    state = engine.start(engine.encode(sources))
    found: list[list[Hypothesis]] = [[] for _ in sources]
    running = list(range(len(sources)))  # which source each sentence of the batch is
    tokens = torch.full((len(sources), 1), engine.special_tokens.decoder_start, device=engine.device)
    history = tokens[:, :, None][:, :, :0]
    scores = torch.zeros((len(sources), 1), device=engine.device)

    with torch.inference_mode():
        for length in range(1, config.max_tokens + 1):
            representations = engine.step(state, tokens[..., None])[:, :, 0]
            log_probabilities = engine.log_probabilities(representations)
            with timing.stage("greedy"):
                constraints.apply(log_probabilities, history)
                best, tokens = log_probabilities.max(-1)
                scores = scores + best
                history = torch.cat([history, tokens[..., None]], dim=-1)
                ended = (tokens[:, 0] == end).tolist() if length < config.max_tokens else [True] * len(running)
                if any(ended):
                    for i, source in enumerate(running):
                        if ended[i]:
                            score = float(scores[i, 0]) / length**config.length_penalty
                            found[source] = [Hypothesis(tuple(history[i, 0].tolist()), score)]
                    open_ = [i for i, over in enumerate(ended) if not over]
                    if not open_:
                        break
                    open_ = with_gaps_filled(open_)
                    state.keep(open_)
                    running = [running[i] for i in open_]
                    tokens, history, scores = tokens[open_], history[open_], scores[open_]
    return found
