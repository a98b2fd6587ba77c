"""The τ of the retrieval cache: its savings and losses, over the states of a beam search.

Almost all hits are between beams: one beam is where another was some steps before. So a single forced path would show
neither savings nor losses. The search continues as if nothing had been borrowed. A row's loss is the Kullback-Leibler
divergence of the borrowed mixture (equation 3) from its own: the nats by which the likelihood of text that follows its
own would fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise

import numpy as np
import torch
from torch import Tensor

from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.decoding.reference import ReferenceBackend
from knnmt.decoding.search import search
from knnmt.engine.base import Engine, State
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.step import SentenceSoFar
from knnmt.translator.translator import Translator

_PARTS = tuple(np.arange(0.05, 0.71, 0.05).tolist())
_ROWS = 256
_BEAM, _BATCH = 5, 16
Mixture = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class DecodedStates:
    """The states of a search, sentence by sentence and step by step.

    states: (rows, dim), the model's
    sentences: (rows,), counted from 0
    steps: (rows,), counted in each sentence
    """

    states: Tensor
    sentences: Tensor
    steps: Tensor


@dataclass(frozen=True, slots=True)
class CacheTradeOff:
    """The effect of one τ.

    quantile: the share of the states that have an entry of the store within τ
    saved: the share of the searches that is saved
    loss: nats per row
    """

    threshold: float
    quantile: float
    saved: float
    loss: float


class _RecordingRetrieval(BatchRetrieval):
    """Retrieval of a batch that records every query state, by sentence and step."""

    def __init__(self, retrieval: Retrieval, sentences: int) -> None:
        super().__init__([retrieval] * sentences)
        self._numbers = list(range(sentences))
        self.seen: list[list[Tensor]] = [[] for _ in range(sentences)]

    def mix(self, representations: Tensor, log_probabilities: Tensor, history: Tensor) -> Tensor:
        for number, states in zip(self._numbers, representations.cpu(), strict=True):
            self.seen[number].append(states)
        return super().mix(representations, log_probabilities, history)

    def keep(self, sentences: Sequence[int]) -> None:
        self._numbers = [self._numbers[place] for place in sentences]
        super().keep(sentences)


def beam_states(
    translator: Translator, opened: OpenStore, config: RetrievalConfig, sources: Iterable[str]
) -> DecodedStates:
    """The states of a beam search over these sources with these settings. Sources that are too long are left out."""
    engine = translator.engine
    decoding = translator.decoding(beam=_BEAM)
    retrieval = Retrieval(opened, replace(config, cache=None))
    seen: list[list[Tensor]] = []
    remaining = iter(sources)
    while texts := list(islice(remaining, _BATCH)):
        encoded = engine.tokenizer.encode_sources(texts)
        if batch := [source for source in encoded if len(source) <= engine.max_positions]:
            recording = _RecordingRetrieval(retrieval, len(batch))
            search(engine, batch, decoding, recording, make=ReferenceBackend)  # the others call no `mix`
            seen += recording.seen
    places = [
        (sentence, step) for sentence, steps in enumerate(seen) for step, states in enumerate(steps) for _ in states
    ]
    states = [states for steps in seen for states in steps]
    sentences, steps = torch.tensor(places, dtype=torch.long).view(-1, 2).T
    return DecodedStates(torch.cat(states) if states else torch.empty(0, engine.dim), sentences, steps)


def cache_trade_offs(
    engine: Engine[State],
    opened: OpenStore,
    decoded: DecodedStates,
    config: RetrievalConfig,
    thresholds: Sequence[float] | None = None,
) -> list[CacheTradeOff]:
    """The effect of rising τ. By default, from a few up to most of the states have an earlier state within τ.

    config: the other settings; a cache among them is ignored
    """
    if not len(decoded.states):
        return []
    queries = opened.project(decoded.states.to(engine.device))
    neighbours = _joined([opened.search(some, config.k) for some in torch.split(queries, _ROWS)])
    if thresholds is None:
        thresholds = usual_thresholds(decoded, queries)
    lenders = simulate(decoded, queries, thresholds)
    nearest = neighbours.distances_sq[:, 0].sqrt()
    own = _mixture(opened, decoded, config, neighbours)
    borrowed = [_mixture(opened, decoded, config, neighbours[rows]) for rows in lenders]
    losses = torch.zeros(len(lenders), dtype=torch.double)
    for rows in torch.split(torch.arange(len(queries)), _ROWS):
        base = engine.log_probabilities(decoded.states[rows].to(engine.device, engine.dtype)).exp()
        for number, other in enumerate(borrowed):  # rows that searched also lose: λ depends on the sentence so far
            losses[number] += divergence(base, _rows(own, rows), _rows(other, rows)).sum().cpu()
    every = torch.arange(len(queries))
    return [
        CacheTradeOff(
            threshold,
            float((nearest <= threshold).double().mean()),
            float((rows != every).double().mean()),
            float(loss) / len(queries),
        )
        for threshold, rows, loss in zip(thresholds, lenders, losses, strict=True)
    ]


def largest_threshold(trade_offs: Sequence[CacheTradeOff], limit: float) -> CacheTradeOff | None:
    """The last of rising τ before one loses more than `limit` nats per row; None if the first does, or none saves."""
    chosen = None
    for each in trade_offs:
        if each.loss > limit:
            break
        chosen = each if each.saved else chosen
    return chosen


def confirmed_cache(
    bleu_of: Callable[[RetrievalConfig], float],
    config: RetrievalConfig,
    trade_offs: Sequence[CacheTradeOff],
    most_lost: float,
) -> CacheTradeOff | None:
    """The largest of rising τ with which BLEU is at most `most_lost` below BLEU without a cache; None if there is none.

    bleu_of: translates with settings and scores; it is called from the largest τ down until one is good enough
    """
    if not trade_offs:
        return None
    whole = bleu_of(config)
    for each in reversed(trade_offs):
        if bleu_of(replace(config, cache=CacheConfig(each.threshold))) >= whole - most_lost:
            return each
    return None


def simulate(decoded: DecodedStates, queries: Tensor, thresholds: Sequence[float]) -> Tensor:
    """For each τ, the row that each row takes its neighbours from, (thresholds, rows); itself if it searches.

    queries (rows, dim) are compared. Rows of one step cannot borrow from each other; only rows that searched lend.
    """
    lenders = np.tile(np.arange(len(queries)), (len(thresholds), 1))
    limits = np.array(thresholds)[:, None]
    for first, distances, starts in _sentences(decoded, queries):
        searched: Array = np.zeros((len(thresholds), len(distances)), bool)
        for begin, end in pairwise(starts):
            hit: Array = np.zeros((len(thresholds), end - begin), bool)
            if begin:
                to_searched = np.where(searched[:, None, :begin], distances[begin:end, :begin], np.inf)
                hit = to_searched.min(2) <= limits
                lenders[:, first + begin : first + end][hit] = first + to_searched.argmin(2)[hit]
            searched[:, begin:end] = ~hit
    return torch.from_numpy(lenders)


def usual_thresholds(decoded: DecodedStates, queries: Tensor) -> list[float]:
    """Rising quantiles of the distance from a state to the nearest state of an earlier step of its sentence."""
    nearest = [
        distances[begin:end, :begin].min(1)
        for _, distances, starts in _sentences(decoded, queries)
        for begin, end in pairwise(starts[1:])
    ]
    return np.unique(np.quantile(np.concatenate(nearest), _PARTS)).tolist() if nearest else []


def _sentences(decoded: DecodedStates, queries: Tensor) -> Iterator[tuple[int, Array, list[int]]]:
    """For each sentence: its first row, the Euclidean distances between its states, and the limits of its steps."""
    first = 0
    for length in torch.bincount(decoded.sentences).tolist():
        states = queries[first : first + length].cpu()
        # Without matrix products, which would give equal states a small distance.
        distances = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist").numpy()
        widths = torch.bincount(decoded.steps[first : first + length]).tolist()
        yield first, distances, [0, *accumulate(widths)]
        first += length


def divergence(base: Tensor, own: Mixture, other: Mixture) -> Tensor:
    """The Kullback-Leibler divergence of one mixture (equation 3) from another with the same model, (rows,) float64.

    base (rows, vocabulary), the model's probabilities; a mixture has tokens and shares (rows, k), and λ (rows,)
    """
    tokens = torch.cat([own[0], other[0]], 1)
    same = (tokens[:, :, None] == tokens[:, None, :]).double()
    k = own[0].shape[1]
    model = base.gather(1, tokens).double()

    def mixed(shares: Tensor, columns: slice, weight: Tensor) -> Tensor:
        memory = torch.matmul(same[:, :, columns], shares.double()[..., None])[..., 0]
        return weight[:, None].double() * memory + (1 - weight[:, None].double()) * model

    p = mixed(own[1], slice(0, k), own[2])
    q = mixed(other[1], slice(k, None), other[2])
    times = same.sum(-1)  # how often each token is listed
    listed = (p * (p.clamp(min=1e-30) / q.clamp(min=1e-30)).log() / times).sum(1)
    rest = (1 - (model / times).sum(1)).clamp(min=0)
    keeps, other_keeps = 1 - own[2].double(), 1 - other[2].double()
    return listed + rest * keeps * (keeps / other_keeps).log()


def _mixture(opened: OpenStore, decoded: DecodedStates, config: RetrievalConfig, neighbours: Neighbours) -> Mixture:
    nearest_sq = neighbours.distances_sq[:, 0]
    so_far = _so_far(decoded, nearest_sq)
    counts = opened.counts(neighbours.ids, config.use_counts)
    weights, log_lambda = DistanceCombiner(config, opened.same_distance).weigh(neighbours, counts, so_far)
    return neighbours.tokens, weights.exp(), log_lambda.exp()


def _rows(mixture: Mixture, rows: Tensor) -> Mixture:
    tokens, shares, weight = mixture
    return tokens[rows], shares[rows], weight[rows]


def _so_far(decoded: DecodedStates, nearest_sq: Tensor) -> SentenceSoFar:
    """What decoding knows of a row's sentence, for the beams of a step together."""
    parts: list[SentenceSoFar] = []
    lengths = torch.bincount(decoded.sentences).tolist()
    for steps, distances_sq in zip(torch.split(decoded.steps, lengths), torch.split(nearest_sq, lengths), strict=True):
        distances = SentenceDistances(1, nearest_sq.device)
        parts += [distances.add(step) for step in torch.split(distances_sq, torch.bincount(steps).tolist())]
    return SentenceSoFar(torch.cat([each.distance for each in parts]), torch.cat([each.steps for each in parts]))


def _joined(parts: Sequence[Neighbours]) -> Neighbours:
    return Neighbours(
        *(torch.cat([getattr(part, name) for part in parts]) for name in ("distances_sq", "tokens", "ids"))
    )
