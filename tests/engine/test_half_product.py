"""Products with weights in float16 beside the same in float64, and when there are none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from knnmt.engine.layers import Projection
from knnmt.engine.product import MAX_HALF_ROWS, half_product
from knnmt.native import library
from native_builds import assert_rows_are_alone

if library() is None:
    pytest.skip("nothing was compiled: no C++ compiler", allow_module_level=True)


def weight(inputs: int, outputs: int) -> torch.Tensor:
    """(in, out), such as float16 holds, very small and very large numbers among them."""
    made = torch.randn(inputs, outputs, generator=torch.Generator().manual_seed(inputs + outputs))
    made[0, :4] = torch.tensor([6e-8, -3e-6, 6e4, 0.0])
    return made.half().float()


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 16), (7, 48), (320, 16), (33, 16 * 21)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_it_is_the_product(inputs: int, outputs: int, with_bias: bool) -> None:
    w = weight(inputs, outputs)
    bias = torch.randn(outputs) if with_bias else None
    product = half_product(w, bias)
    assert product is not None
    for rows in (1, 2, 5, 6, 7, 13, MAX_HALF_ROWS, 70):
        x = torch.randn(rows, inputs)
        expected = x.double().numpy() @ w.double().numpy() + (0 if bias is None else bias.double().numpy())
        scale = np.abs(x.double().numpy()) @ np.abs(w.double().numpy()) + 1
        assert (np.abs(product(x).numpy() - expected) / scale).max() < 2**-24 * (inputs + 2)  # what rounding allows


def test_a_row_depends_neither_on_the_others_nor_on_the_threads() -> None:
    product = half_product(weight(50, 96), torch.randn(96))
    assert product is not None
    x = torch.randn(70, 50)
    assert_rows_are_alone(product, x)
    assert torch.equal(product(x), product(x.T.contiguous().T))  # however the rows lie


def test_nothing_is_rounded_and_nothing_else_is_served() -> None:
    w = weight(8, 32)
    assert half_product(w, None) is not None
    assert half_product(w + 1e-4, None) is None
    assert half_product(w * 1e3, None) is None  # 6e7 is infinite in float16
    assert half_product(w[:, :31], None) is None
    assert half_product(w.bfloat16(), None) is None


def test_projections_of_many_rows_are_pytorchs() -> None:
    bias = torch.randn(16)
    projection = Projection.of(weight(32, 16).T, bias)
    assert projection.compiled is not None
    for rows in (MAX_HALF_ROWS, MAX_HALF_ROWS + 1):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(projection(x), torch.addmm(bias, x, projection.weight), rtol=1e-4, atol=1e-2)
