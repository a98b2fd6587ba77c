"""Equations 2 and 3 beside dense sums over the vocabulary, one row and one token at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from knnmt.datastore.arrays import Array
from knnmt.retrieval.distribution import interpolate_, log_weights, token_log_probabilities

VOCABULARY = 12
INFINITE = float("inf")
Rows = list[list[tuple[float, int, int]]]  # (squared distance, token, count) of each neighbour
distances = st.one_of(st.floats(0, 1e3), st.sampled_from([0.0, 1.0, 25.0, 1e30, 3e38, INFINITE]))
neighbours = st.tuples(distances, st.integers(0, VOCABULARY - 1), st.integers(1, 9))


@st.composite
def rows_of_neighbours(draw: st.DrawFn) -> Rows:
    k = draw(st.integers(1, 6))
    return draw(st.lists(st.lists(neighbours, min_size=k, max_size=k), min_size=1, max_size=4))


def column(rows: Rows, place: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor([[neighbour[place] for neighbour in row] for row in rows], dtype=dtype)


def tokens_of(rows: Rows) -> Tensor:
    """As `Neighbours` has them: 0 where there is none."""
    return column(rows, 1, torch.long).masked_fill(column(rows, 0).isinf(), 0)


def dense_p_knn(row: Sequence[tuple[float, int, int]], temperature: float, counted: bool) -> Array:
    """Equation 2 in float64, over the whole vocabulary; zeros where nothing was found."""
    p = np.zeros(VOCABULARY)
    there = [(float(np.float32(d)), token, count) for d, token, count in row if not math.isinf(np.float32(d))]
    nearest = min((d for d, _, _ in there), default=0.0)
    for d, token, count in there:
        p[token] += (count if counted else 1) * math.exp(-(d - nearest) / temperature)
    return p / (p.sum() or 1)


def model(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)


@given(rows_of_neighbours(), st.floats(1e-3, 1e3), st.booleans(), st.floats(0, 1))
def test_equations_2_and_3(rows: Rows, temperature: float, counted: bool, weight: float) -> None:
    distances_sq, tokens = column(rows, 0), tokens_of(rows)
    weights = log_weights(distances_sq, temperature, column(rows, 2).log() if counted else None)
    log_p_knn = token_log_probabilities(tokens, weights)
    missing = distances_sq.isinf()
    log_lambda = torch.full((len(rows),), weight).log().masked_fill(missing.all(1), -INFINITE)
    log_probabilities = model(len(rows))
    base = log_probabilities.double().exp().numpy()
    offset = interpolate_(log_probabilities, tokens, log_p_knn, log_lambda)
    mixed = (offset[:, None] + log_probabilities).double().exp().numpy()

    assert weights.dtype == log_p_knn.dtype == offset.dtype == log_probabilities.dtype == torch.float32
    assert not any(bool(each.isnan().any()) for each in (weights, log_p_knn, offset, log_probabilities))
    assert (weights[missing] == -INFINITE).all()
    np.testing.assert_allclose(weights.exp().sum(1), ~missing.all(1).numpy(), atol=1e-5)
    for i, row in enumerate(rows):
        p_knn = dense_p_knn(row, temperature, counted)
        np.testing.assert_allclose(log_p_knn[i].exp().numpy(), p_knn[tokens[i].numpy()], rtol=2e-4, atol=1e-6)
        mine = 0.0 if missing[i].all() else weight
        np.testing.assert_allclose(mixed[i], mine * p_knn + (1 - mine) * base[i], rtol=5e-4, atol=1e-6)
    np.testing.assert_allclose(mixed.sum(1), 1, atol=1e-4)


@given(rows_of_neighbours())
def test_without_weight_or_neighbours_nothing_changes(rows: Rows) -> None:
    """Bit for bit, and a hypothesis' score too."""
    for distances_sq, weight in ((column(rows, 0), 0.0), (torch.full_like(column(rows, 0), INFINITE), 0.0)):
        tokens = tokens_of(rows)
        log_probabilities, score = model(len(rows)), torch.linspace(-9, 0, len(rows))
        log_probabilities[0, int(tokens[0, 0])] = -INFINITE  # a token that the model rules out
        before = log_probabilities.clone()
        log_p_knn = token_log_probabilities(tokens, log_weights(distances_sq, 1.0))
        offset = interpolate_(log_probabilities, tokens, log_p_knn, torch.full((len(rows),), weight).log())
        assert torch.equal(log_probabilities, before)
        assert torch.equal(score + offset, score)


def test_by_hand() -> None:
    weights = log_weights(torch.tensor([[0.0, 10.0, 10.0, INFINITE]]), 10.0)
    total = 1 + 2 / math.e
    assert weights.exp().tolist()[0] == pytest.approx([1 / total, 1 / math.e / total, 1 / math.e / total, 0])
    log_p_knn = token_log_probabilities(torch.tensor([[5, 3, 5, 0]]), weights)
    assert log_p_knn.exp().tolist()[0] == pytest.approx(
        [(1 + 1 / math.e) / total, 1 / math.e / total, (1 + 1 / math.e) / total, 0]
    )


def test_a_missing_neighbour_takes_nothing_from_the_token_that_stands_for_it() -> None:
    """Its token reads 0, which may be a real neighbour's token as well."""
    weights = log_weights(torch.tensor([[1.0, INFINITE]]), 1.0)
    log_p_knn = token_log_probabilities(torch.tensor([[0, 0]]), weights)
    log_probabilities = model(1)
    base = float(log_probabilities[0, 0].exp())
    offset = interpolate_(log_probabilities, torch.tensor([[0, 0]]), log_p_knn, torch.tensor([0.25]).log())
    assert float((offset + log_probabilities[0, 0]).exp()) == pytest.approx(0.25 + 0.75 * base)


def test_a_temperature_and_a_weight_for_each_row() -> None:
    distances_sq = torch.tensor([[1.0, 4.0], [1.0, 4.0]])
    together = log_weights(distances_sq, torch.tensor([[2.0], [30.0]]))
    apart = [log_weights(distances_sq[i : i + 1], temperature) for i, temperature in enumerate([2.0, 30.0])]
    torch.testing.assert_close(together, torch.cat(apart))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_weights_are_float32_whatever_the_distances_are(dtype: torch.dtype) -> None:
    distances_sq = torch.tensor([[1, 4, 9]])
    weights = log_weights(distances_sq.to(dtype), 3.0)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, log_weights(distances_sq.float(), 3.0))


@pytest.mark.parametrize("temperature", [1e-9, 1.0, 1e9])
def test_far_neighbours_share_the_weight_among_them(temperature: float) -> None:
    """However far, they come before those that are not there, and their shares sum to 1."""
    weights = log_weights(torch.tensor([[1e31, 1e31, INFINITE], [1e31, INFINITE, INFINITE]]), temperature)
    assert weights.exp().tolist() == [[pytest.approx(0.5)] * 2 + [0], [1, 0, 0]]


@pytest.mark.parametrize("log_lambda", [0.0, -1e-12, -1e-9, -6e-8])
def test_a_weight_that_is_1_as_far_as_float32_can_tell(log_lambda: float) -> None:
    log_probabilities = model(1)
    offset = interpolate_(log_probabilities, torch.tensor([[4]]), torch.zeros(1, 1), torch.tensor([log_lambda]))
    mixed = (offset[:, None] + log_probabilities).exp()
    assert float(mixed[0, 4]) == pytest.approx(1, abs=1e-5)
    assert float(mixed.sum()) == pytest.approx(1, abs=1e-5)


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory of every result that was not among the arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], _types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        given = {each.untyped_storage().data_ptr() for each in args if isinstance(each, Tensor)}
        for result in results if isinstance(results, tuple | list) else [results]:
            if isinstance(result, Tensor) and result.untyped_storage().data_ptr() not in given:
                self.largest = max(self.largest, result.untyped_storage().nbytes())
        return results


def test_nothing_as_wide_as_the_vocabulary_is_made() -> None:
    rows, k, vocabulary = 10, 8, 50_000
    generator = torch.Generator().manual_seed(0)
    distances_sq = torch.rand(rows, k, generator=generator)
    tokens = torch.randint(vocabulary, (rows, k), generator=generator)
    log_probabilities = torch.full((rows, vocabulary), -math.log(vocabulary))
    with Sizes() as sizes:
        log_p_knn = token_log_probabilities(tokens, log_weights(distances_sq, 1.0, torch.zeros(rows, k)))
        interpolate_(log_probabilities, tokens, log_p_knn, torch.full((rows,), 0.5).log())
    assert 0 < sizes.largest <= 8 * rows * k * k  # which token equals which, and nothing larger
    with Sizes() as sizes:
        log_probabilities.exp()
    assert sizes.largest == 4 * rows * vocabulary  # so it would have been noticed
