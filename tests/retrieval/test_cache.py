"""The cache beside a list of vectors that is walked through, in the order in which they came."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.config import CacheConfig
from knnmt.datastore.arrays import Array
from knnmt.retrieval.cache import RetrievalCache
from knnmt.retrieval.neighbours import Neighbours

DIM, K = 3, 2
CPU = torch.device("cpu")


@dataclass
class ListCache:
    """One scope: states with what they found, the oldest first."""

    capacity: int
    held: list[tuple[Array, int]] = field(default_factory=list)

    def nearest(self, state: Array) -> tuple[float, set[int]]:
        """The least distance, and what was found by the states at that distance."""
        distances = [(float(np.linalg.norm(state - other)), name) for other, name in self.held]
        least = min((distance for distance, _ in distances), default=float("inf"))
        return least, {name for distance, name in distances if distance <= least + 1e-4}

    def add(self, state: Array, name: int) -> None:
        self.held = [*self.held, (state, name)][-self.capacity :]


def named(names: Tensor) -> Neighbours:
    """Neighbours that can be told apart: names (rows,)."""
    ids = names[:, None].expand(-1, K).contiguous()
    return Neighbours(ids + 0.5, ids + 1, ids)


@given(
    seed=st.integers(0, 10_000),
    scopes=st.integers(1, 3),
    capacity=st.sampled_from([1, 2, 5, 7, 40, 4096]),
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    grid=st.booleans(),
)
def test_the_cache_is_a_list_of_states(seed: int, scopes: int, capacity: int, widths: list[int], grid: bool) -> None:
    """Rows are added by chance, scopes leave and change places, and a scope may have more rows than the cache room."""
    chance = np.random.default_rng(seed)
    cache = RetrievalCache(scopes, DIM, K, CacheConfig(1.0, capacity=capacity), CPU)
    expected = [ListCache(capacity) for _ in range(scopes)]
    name = 0
    for width in widths:
        states = chance.normal(size=(len(expected), width, DIM)) * 3
        queries = torch.from_numpy((np.round(states) if grid else states).astype(np.float32))
        distances, places = cache.nearest(queries)
        for scope, reference in enumerate(expected):
            for row in range(width):
                least, names = reference.nearest(queries[scope, row].numpy())
                assert float(distances[scope, row]) == pytest.approx(least, rel=1e-4, abs=1e-6)
                if names:
                    found = cache.at(torch.tensor([scope]), places[scope, row][None])
                    assert int(found.ids[0, 0]) in names
                    assert torch.equal(found.tokens, found.ids + 1)
                    assert torch.equal(found.distances_sq, found.ids + 0.5)

        chosen = chance.random((len(expected), width)) < 0.7
        names_now = torch.arange(name, name + chosen.size)
        cache.add(torch.from_numpy(chosen), queries, named(names_now))
        for scope, row in zip(*chosen.nonzero(), strict=True):
            expected[scope].add(queries[scope, row].numpy(), name + scope * width + row)
        name += chosen.size

        if chance.random() < 0.3:
            kept = chance.integers(len(expected), size=chance.integers(1, len(expected) + 1)).tolist()
            cache.keep(kept)
            expected = [ListCache(capacity, list(expected[old].held)) for old in kept]


def test_a_state_is_at_distance_0_of_itself() -> None:
    """However long it is."""
    states = 100 * torch.randn(1, 50, 320, generator=torch.Generator().manual_seed(0))
    cache = RetrievalCache(1, 320, K, CacheConfig(0.0), CPU)
    cache.add(torch.ones(1, 50, dtype=torch.bool), states, named(torch.arange(50)))
    distances, places = cache.nearest(states)
    assert distances.tolist() == [[0.0] * 50]
    assert cache.at(torch.zeros(50, dtype=torch.long), places[0]).ids[:, 0].tolist() == list(range(50))


def test_what_found_fewer_is_padded_when_it_is_taken_over() -> None:
    cache = RetrievalCache(1, DIM, 4, CacheConfig(1.0), CPU)
    cache.add(torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, DIM), named(torch.tensor([5])))
    found = cache.at(torch.tensor([0]), torch.tensor([0]))
    assert found.ids.tolist() == [[5, 5, -1, -1]]
    assert found.distances_sq.tolist() == [[5.5, 5.5, float("inf"), float("inf")]]


def test_room_grows_only_as_far_as_it_is_needed() -> None:
    cache = RetrievalCache(1, DIM, K, CacheConfig(1.0, capacity=100), CPU)
    states = torch.randn(1, 30, DIM, generator=torch.Generator().manual_seed(0))
    sizes = []
    for _ in range(5):
        cache.add(torch.ones(1, 30, dtype=torch.bool), states, named(torch.arange(30)))
        sizes.append(cache._keys.shape[1])
    assert sizes == [32, 64, 100, 100, 100]


def test_origins_are_the_states_that_were_searched() -> None:
    """A hit that is kept lends on what another state found: the origin stays that other state."""
    cache = RetrievalCache(1, 1, K, CacheConfig(1.0, keep_hits=True), CPU)
    first, hit, far = (torch.tensor([[[value]]]) for value in (0.0, 0.9, 1.8))
    kept = torch.ones((1, 1), dtype=torch.bool)
    cache.add(kept, first, named(torch.tensor([7])))
    scope = torch.tensor([0])
    for state, distance in ((hit, 0.9), (far, 0.9)):  # each within 1 of the one before it
        distances, places = cache.nearest(state)
        assert float(distances) == pytest.approx(distance)
        origin = cache.origins(scope, places[0])
        assert origin.tolist() == [[0.0]]
        cache.add(kept, state, cache.at(scope, places[0]), origin[None])
    assert cache.at(scope, torch.tensor([2])).ids.tolist() == [[7, 7]]
