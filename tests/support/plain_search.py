"""Beam search written as the algorithm reads, to compare with."""

from __future__ import annotations

import math
from typing import Any

import torch

from knnmt.config import DecodingConfig
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.base import Engine


def plain_beam_search(engine: Engine[Any], source: list[int], config: DecodingConfig) -> list[Hypothesis]:
    """One sentence, no cache, Python lists: the algorithm as it reads."""
    end, start = engine.special_tokens.end, engine.special_tokens.decoder_start
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    for length in range(1, config.max_tokens + 1):
        candidates: list[tuple[tuple[int, ...], float]] = []
        for tokens, score in running:
            state = engine.start(engine.encode([source]))
            row = engine.log_probabilities(engine.step(state, torch.tensor([[[start, *tokens]]])))[0, 0, -1]
            if length == config.max_tokens and config.forced_last_token is not None:
                row = torch.full_like(row, -math.inf)
                row[config.forced_last_token] = 0.0
            candidates += [((*tokens, token), score + value) for token, value in enumerate(row.tolist())]
        candidates = sorted(candidates, key=lambda item: -item[1])[: 2 * config.beam]
        for rank, (tokens, score) in enumerate(candidates):
            if rank < config.beam and (tokens[-1] == end or length == config.max_tokens):
                finished.append(Hypothesis(tokens, score / length**config.length_penalty))
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[: config.beam]
        running = [item for item in candidates if item[0][-1] != end][: config.beam]
        if len(finished) == config.beam and running[0][1] / length**config.length_penalty <= finished[-1].score:
            break
    return finished
