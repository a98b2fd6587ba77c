"""τ by simulation: against a plain loop, against the cache that decoding uses, and what must hold of any search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.adapting.cache_tuning import (
    CacheTradeOff,
    DecodedStates,
    cache_trade_offs,
    divergence,
    largest_threshold,
    simulate,
)
from knnmt.config import CacheConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.cache import RetrievalCache
from knnmt.retrieval.combiner import DistanceCombiner, SentenceDistances
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from support.datastore_pairs import some_pairs

WIDTHS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=4)
WIDTH = 3


def made(widths: list[list[int]], seed: int, dim: int = 3) -> DecodedStates:
    """States on a coarse grid, so that distances repeat; widths: the rows of each step of each sentence."""
    rows = [
        (sentence, step)
        for sentence, steps in enumerate(widths)
        for step, width in enumerate(steps)
        for _ in range(width)
    ]
    states = torch.randint(3, (len(rows), dim), generator=torch.Generator().manual_seed(seed)).float()
    return DecodedStates(states, *torch.tensor(rows).T)


def by_loop(decoded: DecodedStates, threshold: float) -> list[int]:
    asked: list[int] = []
    for row, state in enumerate(decoded.states.numpy()):
        earlier = [
            other
            for other in range(row)
            if asked[other] == other
            and decoded.sentences[other] == decoded.sentences[row]
            and decoded.steps[other] < decoded.steps[row]
        ]
        distances = [float(np.linalg.norm(state - decoded.states[other].numpy())) for other in earlier]
        hit = bool(distances) and min(distances) <= threshold
        asked.append(earlier[int(np.argmin(distances))] if hit else row)
    return asked


@given(WIDTHS, st.integers(0, 99), st.lists(st.floats(0, 4), min_size=1, max_size=4))
def test_who_asks_whom_is_what_a_plain_loop_finds(widths: list[list[int]], seed: int, thresholds: list[float]) -> None:
    decoded = made(widths, seed)
    expected = [by_loop(decoded, threshold) for threshold in thresholds]
    assert simulate(decoded, decoded.states, thresholds).tolist() == expected


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1.5, 2.0, 9.0])
def test_hits_are_those_of_the_cache_that_decoding_uses(threshold: float) -> None:
    decoded = made([[WIDTH] * 7], seed=5)
    asked = simulate(decoded, decoded.states, [threshold])[0]
    cache = RetrievalCache(1, 3, 1, CacheConfig(threshold), torch.device("cpu"))
    for rows in torch.split(torch.arange(len(asked)), WIDTH):
        queries = decoded.states[rows][None]
        distances, places = cache.nearest(queries)
        hits = distances[0] <= threshold
        assert torch.equal(hits, asked[rows] != rows)
        found = cache.at(torch.zeros(WIDTH, dtype=torch.long), places[0]).ids[:, 0] if rows[0] else asked[rows]
        same = (decoded.states[found] == decoded.states[asked[rows]]).all(1)  # equal states may stand for each other
        assert bool(same[hits].all())
        own = Neighbours(torch.zeros(WIDTH, 1), torch.zeros(WIDTH, 1).long(), rows[:, None])
        cache.add(~hits[None], queries, own)


def test_the_divergence_is_that_of_whole_distributions() -> None:
    generator = torch.Generator().manual_seed(2)
    rows, vocabulary, k = 30, 9, 5
    base = torch.rand(rows, vocabulary, generator=generator).softmax(-1)
    mixtures, dense = [], []
    for _ in range(2):
        tokens = torch.randint(vocabulary, (rows, k), generator=generator)
        shares = torch.rand(rows, k, generator=generator).softmax(-1)
        weight = 0.95 * torch.rand(rows, generator=generator)
        mixtures.append((tokens, shares, weight))
        whole = (1 - weight[:, None]) * base
        dense.append(whole.scatter_add(1, tokens, weight[:, None] * shares).double())
    expected = (dense[0] * (dense[0] / dense[1]).log()).sum(1)
    assert divergence(base, *mixtures).tolist() == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-6)
    assert divergence(base, mixtures[0], mixtures[0]).abs().max() < 1e-9


@pytest.mark.parametrize("fading", [None, Fading(7.0, 1.0, 7.0, 1.0)])
def test_trade_offs_of_a_store(tiny: TransformerEngine, tmp_path: Path, fading: Fading | None) -> None:
    """What is lost, by hand for one τ; nothing where nothing is borrowed; and τ that are distances that there are."""
    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(12), tiny))
    decoded = made([[2] * 5, [1, 3, 3]], seed=4, dim=32)
    config = RetrievalConfig(4, 0.6, 20.0, fading)
    nothing, some, everything = cache_trade_offs(tiny, opened, decoded, config, [-1.0, 6.5, 1e6])
    assert nothing.saved == 0
    assert nothing.loss == pytest.approx(0, abs=1e-9)
    assert everything.saved == pytest.approx(1 - (2 + 1) / 17)
    assert 0 < some.saved < everything.saved

    asked = simulate(decoded, decoded.states, [6.5])[0]
    found = opened.search(decoded.states, 4)
    base = tiny.log_probabilities(decoded.states).exp()
    whole = []
    for rows in (torch.arange(17), asked):
        neighbours = found[rows]
        means = []
        for sentence in range(2):
            distances = SentenceDistances(1, torch.device("cpu"))
            mine = decoded.sentences == sentence
            steps = [mine & (decoded.steps == step) for step in range(int(decoded.steps[mine].max()) + 1)]
            means += [distances.add(neighbours.distances_sq[step, 0]) for step in steps]
        so_far = type(means[0])(torch.cat([m.distance for m in means]), torch.cat([m.steps for m in means]))
        weights, log_lambda = DistanceCombiner(config, opened.same_distance).weigh(neighbours, None, so_far)
        memory = torch.zeros_like(base).scatter_add(1, neighbours.tokens, weights.exp())
        whole.append((log_lambda.exp()[:, None] * memory + (1 - log_lambda.exp()[:, None]) * base).double())
    expected = (whole[0] * (whole[0] / whole[1]).log()).sum(1).mean()
    assert some.loss == pytest.approx(float(expected), rel=1e-3)
    assert some.quantile == pytest.approx(float((found.distances_sq[:, 0].sqrt() <= 6.5).float().mean()))

    usual = cache_trade_offs(tiny, opened, decoded, config)
    assert all(0 < each.saved <= everything.saved for each in usual)
    assert [each.threshold for each in usual] == sorted({each.threshold for each in usual})
    single = DecodedStates(decoded.states[:2], torch.tensor([0, 1]), torch.tensor([0, 0]))
    assert cache_trade_offs(tiny, opened, single, config) == []  # no step before


def test_the_largest_threshold_within_a_limit() -> None:
    offs = [CacheTradeOff(t, 0.1 * t, 0.1 * t, loss) for t, loss in [(1, 0.001), (2, -0.002), (3, 0.02), (4, 0.004)]]
    chosen = largest_threshold(offs, 0.01)
    assert chosen is not None
    assert chosen.threshold == 2  # not 4: behind one that loses more, a small loss is luck
    last = largest_threshold(offs, 0.5)
    assert last is not None
    assert last.threshold == 4
    assert largest_threshold(offs, 0.0) is None
    assert largest_threshold([CacheTradeOff(0, 0, 0, 0)], 0.5) is None
