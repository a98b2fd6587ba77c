"""Fidelity beside dense distributions and sorted distances."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.calibration.fidelity import BATCHES, Fidelity, fidelity, milliseconds_per_batch, total_variation
from knnmt.index.base import SearchResult, nothing
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from support.index_stores import clustered, write_store

Distribution = list[tuple[int, float]]
distributions = st.lists(st.tuples(st.integers(-1, 6), st.floats(0, 1)), min_size=1, max_size=6)
QUERIES = torch.from_numpy(clustered(30, seed=9))


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    return Entries(write_store(tmp_path_factory.mktemp("s") / "s", [clustered(300)]))


def row(distribution: Distribution) -> tuple[Tensor, Tensor]:
    tokens, shares = zip(*distribution, strict=True)
    return torch.tensor([tokens]), torch.tensor([shares])


@given(distributions, distributions)
def test_total_variation_is_half_the_dense_difference(one: Distribution, other: Distribution) -> None:
    p, q = np.zeros(8), np.zeros(8)
    for dense, distribution in ((p, one), (q, other)):
        for token, share in distribution:
            dense[token] += share
    expected = np.abs(p - q).sum() / 2
    assert float(total_variation(row(one), row(other))) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def dense_variation(found: SearchResult, true: SearchResult, entries: Entries, temperature: float) -> float:
    p = np.zeros((2, len(found[1]), 100))
    for which, (distances_sq, ids) in enumerate((found, true)):
        for i, (distances, neighbours) in enumerate(zip(distances_sq.tolist(), ids.tolist(), strict=True)):
            for distance, entry in zip(distances, neighbours, strict=True):
                if entry >= 0:
                    p[which, i, int(entries.values[entry])] += np.exp(-(distance - min(distances)) / temperature)
            p[which, i] /= p[which, i].sum()
    return float(np.abs(p[0] - p[1]).sum(1).mean() / 2)


def assert_near(measured: Fidelity, expected: Fidelity) -> None:
    assert (measured.recall, measured.variation) == pytest.approx((expected.recall, expected.variation), abs=1e-6)


def test_exact_search_loses_nothing(entries: Entries) -> None:
    true = ExactIndex(entries).search(QUERIES, 8)
    assert_near(fidelity(QUERIES, true, true, entries, 3.0), Fidelity(1.0, 0.0))


def test_a_search_that_misses_some(entries: Entries) -> None:
    """The second nearest is passed over, the fifth too where the row is even, so the next ones move up."""
    true = ExactIndex(entries).search(QUERIES, 8)
    more = ExactIndex(entries).search(QUERIES, 10)
    columns = torch.tensor([[0, 2, 3, 5, 6, 7, 8, 9], [0, 2, 3, 4, 5, 6, 7, 8]]).repeat(15, 1)
    found = more[0].gather(1, columns), more[1].gather(1, columns)
    measured = fidelity(QUERIES, found, true, entries, 3.0)
    assert measured.recall == pytest.approx((6 + 7) / 16)
    assert measured.variation == pytest.approx(dense_variation(found, true, entries, 3.0), rel=1e-4)
    assert measured.variation > 0.01


def test_distances_that_an_index_only_estimates_count_for_variation_but_not_for_recall(entries: Entries) -> None:
    true = ExactIndex(entries).search(QUERIES, 8)
    rough = true[0] * torch.linspace(1, 0.5, 8), true[1]
    measured = fidelity(QUERIES, rough, true, entries, 3.0)
    assert measured.recall == 1
    assert measured.variation == pytest.approx(dense_variation(rough, true, entries, 3.0), rel=1e-4)


def test_entries_as_near_as_the_true_ones_count(tmp_path: Path) -> None:
    """Six entries at one place: which three of them are found is chance."""
    store = write_store(tmp_path / "s", [np.concatenate([np.ones((6, 32)), 5 + np.ones((6, 32))])])
    entries = Entries(store)
    query = torch.full((1, 32), 1.5)
    true = torch.full((1, 3), 8.0), torch.tensor([[0, 1, 2]])
    measured = fidelity(query, (true[0], torch.tensor([[5, 3, 4]])), true, entries, 1.0)
    assert_near(measured, Fidelity(1.0, 1.0))  # for all tokens are others
    assert fidelity(query, (true[0], torch.tensor([[5, 3, 9]])), true, entries, 1.0).recall == pytest.approx(2 / 3)


def test_a_store_with_fewer_entries_than_k(tmp_path: Path) -> None:
    entries = Entries(write_store(tmp_path / "s", [clustered(5)]))
    true = ExactIndex(entries).search(QUERIES, 8)
    assert_near(fidelity(QUERIES, true, true, entries, 1.0), Fidelity(1.0, 0.0))
    none = torch.full((30, 8), float("inf")), torch.full((30, 8), -1)
    assert fidelity(QUERIES, none, true, entries, 1.0).recall == 0


def test_times_are_those_of_batches_of_each_size(entries: Entries) -> None:
    class Noting:
        asked: list[int] = []  # noqa: RUF012

        def search(self, queries: Tensor, k: int) -> SearchResult:
            self.asked.append(len(queries))
            return ExactIndex(entries).search(queries, k)

    times = milliseconds_per_batch(Noting(), QUERIES, 8)
    assert set(Noting.asked) == set(times) == set(BATCHES)
    assert len(Noting.asked) == 7 * len(BATCHES)
    assert all(each > 0 for each in times.values())


def test_long_searches_are_timed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=0.11)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    asked: list[int] = []

    class Slow:
        def search(self, queries: Tensor, _k: int) -> SearchResult:
            asked.append(len(queries))
            return nothing(queries)

    assert milliseconds_per_batch(Slow(), QUERIES, 8) == pytest.approx(dict.fromkeys(BATCHES, 110))
    assert asked == [size for size in BATCHES for _ in range(3)]
