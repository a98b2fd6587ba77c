"""Greedy search: the best token at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.batch import Batch
from knnmt.decoding.continuations import best_tokens
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
        for length in range(1, config.max_tokens + 1):
            scores, log_probabilities = batch.step()
            with timing.stage("greedy"):
                best, tokens = (each[:, None] for each in best_tokens(log_probabilities[:, 0]))
                best = best + scores
                parents = torch.zeros_like(tokens)
                ends = tokens[:, 0] == end
                if length == config.max_tokens:
                    ends.fill_(True)

                lost = ~best[:, 0].isfinite()
                ended = (ends & ~lost).nonzero()[:, 0]
                if sentences := ended.tolist():
                    hypotheses = batch.ended(ended, parents[ended, 0], tokens[ended, 0], best[ended, 0])
                    for i, hypothesis in zip(sentences, hypotheses, strict=True):
                        score = hypothesis.score / length**config.length_penalty
                        results[batch.sources[i]] = [replace(hypothesis, score=score)]
                        found(batch.sources[i], results[batch.sources[i]])
                running = (~(ends | lost)).nonzero()[:, 0].tolist()
                if not running:
                    break
                batch.follow(parents, tokens, best)
                batch.keep(running)
                if growing is not None:
                    growing(batch.leading)
    return results
