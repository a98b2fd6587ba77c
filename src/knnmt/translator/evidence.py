"""Why a token was chosen: what the model thought of it, and which entries of the memory spoke for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from knnmt.corpus.pairs import SegmentPair
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.tokenizer import Tokenizer
from knnmt.retrieval.retriever import OpenStore, Retrieved


@dataclass(frozen=True, slots=True)
class EvidenceNeighbour:
    """An entry of the memory that was near.

    token: the piece of text that the entry stands for
    distance: Euclidean; weight: its share of p_kNN
    pair: the sentence that it comes from, with its origin; position: its place among the target's tokens
    entry: its id in the store
    """

    token: str
    distance: float
    weight: float
    pair: SegmentPair
    position: int
    entry: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a token's probability was made of: λ p_kNN + (1 - λ) p_model.

    cached: the neighbours were taken over from an earlier step
    neighbours: nearest first; none where nothing was retrieved
    """

    probability: float
    model_probability: float
    memory_probability: float
    interpolation_weight: float
    cached: bool
    neighbours: tuple[EvidenceNeighbour, ...]


def evidence_of(
    hypothesis: Hypothesis, steps: list[Retrieved | None], store: OpenStore, tokenizer: Tokenizer
) -> list[Evidence]:
    """The evidence of each token of a hypothesis, from what the steps of its search retrieved."""
    chosen = zip(hypothesis.tokens, hypothesis.rows, hypothesis.base, strict=True)
    return [_evidence(token, row, base, steps[i], store, tokenizer) for i, (token, row, base) in enumerate(chosen)]


def _evidence(
    token: int, row: int, base: float, step: Retrieved | None, store: OpenStore, tokenizer: Tokenizer
) -> Evidence:
    model_probability = math.exp(base)
    if step is None:  # the token was forced
        return Evidence(model_probability, model_probability, 0.0, 0.0, False, ())
    weight = float(step.log_lambda[row].exp())
    tokens = step.neighbours.tokens[row].tolist()
    ids = step.neighbours.ids[row].tolist()
    distances = step.neighbours.distances_sq[row].sqrt().tolist()
    shares = step.weights[row].exp().tolist()
    found = [each for each in zip(tokens, ids, distances, shares, strict=True) if each[1] >= 0]
    memory_probability = math.fsum(share for near, _, _, share in found if near == token)
    neighbours = []
    for near, entry_id, distance, share in found:
        entry = store.store.entry(entry_id)
        neighbours.append(
            EvidenceNeighbour(tokenizer.piece(near), distance, share, entry.pair, entry.position, entry_id)
        )
    return Evidence(
        probability=weight * memory_probability + (1 - weight) * model_probability,
        model_probability=model_probability,
        memory_probability=memory_probability,
        interpolation_weight=weight,
        cached=bool(step.hits[row]),
        neighbours=tuple(neighbours),
    )
