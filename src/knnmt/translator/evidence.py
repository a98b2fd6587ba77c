"""Why a token was chosen: its probability in the model, and the entries of the memory that supported it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from knnmt.corpus.pairs import SegmentPair
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.tokenizer import Tokenizer
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.plain import Retrieved
from knnmt.segments.covering import Coverage
from knnmt.translator.spans import Span, span_in_segment


@dataclass(frozen=True, slots=True)
class EvidenceNeighbour:
    """A near entry of the memory.

    token: the piece of text that the entry stands for
    distance: Euclidean
    weight: its share of p_kNN
    pair: the sentence that it comes from, with its origin
    position: its place among the target's tokens
    span: its characters in pair.target, (start, end); empty at the end for the end of the sentence
    entry: its id in the store
    """

    token: str
    distance: float
    weight: float
    pair: SegmentPair
    position: int
    span: Span
    entry: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The parts of a token's probability: λ p_kNN + (1 - λ) p_model.

    cached: whether the neighbours come from an earlier step
    neighbours: nearest first; empty if nothing was retrieved
    forced: whether only one token was possible: a language code, or the end of a translation of the largest length
    """

    probability: float
    model_probability: float
    memory_probability: float
    interpolation_weight: float
    cached: bool
    neighbours: tuple[EvidenceNeighbour, ...]
    forced: bool = False

    @property
    def share(self) -> float:
        """The part of the probability that came from memory, 0 to 1: λ p_kNN / (λ p_kNN + (1 - λ) p_model)."""
        return self.interpolation_weight * self.memory_probability / self.probability if self.probability else 0.0

    def __str__(self) -> str:
        """Equation 3 for the token, as a sentence or two."""
        if self.forced:
            return "This token was forced; neither the model nor the memory chose it."
        if not self.neighbours:
            return f"The memory was not searched. The model alone gives {percent(self.probability)}."
        cached = " The neighbours come from the cache of an earlier step." if self.cached else ""
        return (
            f"The model gives {percent(self.model_probability)} and the memory {percent(self.memory_probability)}. "
            f"With λ = {self.interpolation_weight:.2f} the result is {percent(self.probability)}.{cached}"
        )


def percent(part: float) -> str:
    """A probability or a share in readable form: 62%, 3.4%, under 0.1%."""
    if 0 < part < 0.0005:
        return "under 0.1%"
    return f"{part:.1%}" if 0 < part < 0.0995 or 0.995 <= part < 0.9995 else f"{part:.0%}"


def in_per_cent(coverage: Coverage) -> str:
    """How much of a source is covered, in readable form."""
    return f"{percent(coverage.covered)} of the source, {percent(coverage.by_one)} by one segment"


def evidence_of(
    hypothesis: Hypothesis, steps: list[Retrieved | None], store: Snapshot, tokenizer: Tokenizer
) -> list[Evidence]:
    """The evidence of each token of a hypothesis, from the retrievals of its search."""
    chosen = zip(hypothesis.tokens, hypothesis.rows, hypothesis.base, strict=True)
    shown = _Entries(store, tokenizer)
    return [_evidence(token, row, base, steps[i], shown) for i, (token, row, base) in enumerate(chosen)]


class _Entries:
    """Entries of a store in displayed form; the steps of a sentence find many of them again and again."""

    def __init__(self, store: Snapshot, tokenizer: Tokenizer) -> None:
        self._store = store.datastore
        self._tokenizer = tokenizer
        self._seen: dict[int, EvidenceNeighbour] = {}

    def __call__(self, entry_id: int, distance: float, weight: float) -> EvidenceNeighbour:
        if entry_id not in self._seen:
            entry = self._store.entry(entry_id)
            span = span_in_segment(self._tokenizer, entry.target_tokens.tolist(), entry.position, entry.pair.target)
            piece = self._tokenizer.piece(entry.value)
            self._seen[entry_id] = EvidenceNeighbour(piece, 0.0, 0.0, entry.pair, entry.position, span, entry_id)
        return replace(self._seen[entry_id], distance=distance, weight=weight)


def _evidence(token: int, row: int, base: float, step: Retrieved | None, shown: _Entries) -> Evidence:
    model_probability = math.exp(base)
    if step is None:
        return Evidence(model_probability, model_probability, 0.0, 0.0, False, (), forced=True)
    weight = float(step.log_lambda[row].exp())
    tokens = step.neighbours.tokens[row].tolist()
    ids = step.neighbours.ids[row].tolist()
    distances = step.neighbours.distances_sq[row].sqrt().tolist()
    shares = step.weights[row].exp().tolist()
    found = [each for each in zip(tokens, ids, distances, shares, strict=True) if each[1] >= 0]
    memory_probability = math.fsum(share for near, _, _, share in found if near == token)
    return Evidence(
        probability=weight * memory_probability + (1 - weight) * model_probability,
        model_probability=model_probability,
        memory_probability=memory_probability,
        interpolation_weight=weight,
        cached=bool(step.hits[row]),
        neighbours=tuple(shown(entry, distance, share) for _, entry, distance, share in found),
    )
