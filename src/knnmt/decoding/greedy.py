"""Greedy search: the best token at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.batch import Batch
from knnmt.decoding.hypothesis import Found, Growing, Hypothesis, unheard
from knnmt.engine.base import Engine, State
from knnmt.retrieval.retriever import BatchRetrieval


def greedy_search(
    engine: Engine[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
    found: Found = unheard,
    growing: Growing | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis for each source, in a list as in `beam_search`; an empty list if none is possible."""
    end = engine.special_tokens.end
    batch = Batch(engine, sources, config, retrieval)
    results: list[list[Hypothesis]] = [[] for _ in sources]

    with torch.inference_mode():
        while True:
            scores, parents, chosen = batch.best(1, config.max_tokens if growing is None else 1)
            with timing.stage("greedy"):
                best, tokens = scores[:, 0], chosen[:, 0]
                length = batch.history.shape[-1] + 1
                last = length == config.max_tokens
                possible = [
                    (place, last or token == end)
                    for place, (token, total) in enumerate(zip(tokens.tolist(), best.tolist(), strict=True))
                    if isfinite(total)
                ]
                if ended := [place for place, ends in possible if ends]:
                    at = torch.tensor(ended, device=tokens.device)
                    hypotheses = batch.ended(at, parents[at, 0], tokens[at], best[at])
                    for place, hypothesis in zip(ended, hypotheses, strict=True):
                        score = hypothesis.score / length**config.length_penalty
                        results[batch.sources[place]] = [replace(hypothesis, score=score)]
                        found(batch.sources[place], results[batch.sources[place]])
                running = [place for place, ends in possible if not ends]
                if not running:
                    break
                batch.follow(parents, chosen, scores)
                batch.keep(running)
                if growing is not None:
                    growing(batch.leading)
    return results
