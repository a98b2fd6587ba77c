"""Products with weights in 4, 3 and 2 bytes beside the same in float64, in every build, and when there are none."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from knnmt import native
from knnmt.engine import product
from knnmt.engine.layers import PackedProjection, Projection, projection
from knnmt.engine.product import CompiledProduct, float_product
from support.native_builds import assert_rows_are_alone, vector_builds_that_run

if native.library() is None:
    pytest.skip("nothing was compiled: no C++ compiler", allow_module_level=True)


@pytest.fixture(params=vector_builds_that_run())
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    found = native.load(request.param)
    assert found is not None
    monkeypatch.setattr(product, "library", lambda: found)
    return found


def weight(outputs: int, inputs: int, size: int) -> Tensor:
    """(out, in), very small and very large numbers among them; such as so many bytes hold."""
    made = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(inputs + outputs))
    made[:4, 0] = torch.tensor([6e-8, -3e-6, 6e4 if size != 3 else 6.0, 0.0])[:outputs]
    made[-1, -1] = 0.1 if size > 2 else 0.5
    return made.half().float() if size == 2 else made


def made(w: Tensor, bias: Tensor | None, size: int) -> CompiledProduct:
    found = float_product(w, bias, of_steps=size == 3)
    assert found is not None
    assert found.matrix["bytes"][0] == size
    return found


def made_of_steps(w: Tensor, size: int) -> CompiledProduct:
    found = float_product(w, None, of_steps=True)
    assert found is not None
    assert found.matrix["bytes"][0] == size
    return found


def assert_is_the_product(found: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, size: int) -> None:
    inputs = w.shape[1]
    wide_x, wide_w = x.double().numpy(), w.double().numpy().T
    expected = wide_x @ wide_w + (0 if bias is None else bias.double().numpy())
    scale = np.abs(wide_x) @ np.abs(wide_w) + 1 + (0 if bias is None else bias.abs().numpy())
    allowed = 2**-24 * (inputs + 2) * scale  # by rounding
    if size == 3:  # and each weight is off by half a step
        allowed += 2**-24 * (scale + 1.001 * np.abs(wide_x).sum(1)[:, None] * np.abs(wide_w).max(0))
    assert (np.abs(found.numpy() - expected) / allowed).max() < 1


@pytest.mark.usefixtures("build")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True, max_examples=60)
@given(
    rows=st.integers(1, 30),
    inputs=st.integers(1, 150),
    outputs=st.integers(1, 140),
    bias=st.booleans(),
    size=st.sampled_from([2, 3, 4]),
)
def test_it_is_the_product(rows: int, inputs: int, outputs: int, bias: bool, size: int) -> None:
    w = weight(outputs, inputs, size)
    random = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, inputs, generator=random)
    b = torch.randn(outputs, generator=random) if bias else None
    assert_is_the_product(made(w, b, size)(x), x, w, b, size)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(41, 513, 97), (260, 1030, 50), (500, 40, 320), (6, 4099, 70), (3, 20, 1100)]
)
def test_so_it_is_in_blocks_of_inputs_and_rows(rows: int, inputs: int, outputs: int, size: int) -> None:
    w, b, x = weight(outputs, inputs, size), torch.randn(outputs), torch.randn(rows, inputs)
    assert_is_the_product(made(w, b, size)(x), x, w, b, size)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("inputs", [50, 1100])
def test_a_row_depends_neither_on_the_others_nor_on_the_threads(inputs: int, size: int) -> None:
    found = made(weight(99, inputs, size), torch.randn(99), size)
    x = torch.randn(70, inputs)
    assert_rows_are_alone(found, x)
    assert torch.equal(found(x), found(x.T.contiguous().T))  # however the rows lie


def test_weights_are_in_float16_where_nothing_is_rounded() -> None:
    w = weight(32, 8, 2)
    for of_steps in (False, True):
        assert float_product(w, None, of_steps).matrix["bytes"][0] == 2  # type: ignore[union-attr]
    made(w + 1e-4, None, 4)
    made(w * 1e3, None, 4)  # 6e7 is infinite in float16


@pytest.mark.parametrize("of_an_output", [1e3, 1e-32, float("inf"), float("nan")])
def test_weights_of_very_different_size_stay_in_float32(of_an_output: float) -> None:
    w = torch.rand(40, 500) + 0.1
    made(w, None, 3)
    w[7] *= min(1, of_an_output)
    w[7, 5] *= of_an_output
    made_of_steps(w, 4)


@pytest.mark.parametrize("one", [1e18, 1e20, 1e30, 1e-20, 1e-30])
def test_so_do_uneven_ones_whose_squares_no_float_holds(one: float) -> None:
    w = torch.rand(40, 500) + 0.1
    w[7] *= one * 1e-9
    w[7, 5] = one
    x = torch.ones(1, 500)
    x[0, 5] = 0  # only the smaller ones are left
    found = made_of_steps(w, 4)(x).double()
    torch.testing.assert_close(found, x.double() @ w.double().T, rtol=1e-5, atol=0)


def test_an_output_of_zeros_is_its_bias() -> None:
    w, bias = torch.rand(40, 50) + 0.1, torch.randn(40)
    w[7] = 0
    found = made(w, bias, 3)
    for rows in (1, 20):
        assert (found(torch.randn(rows, 50) * 1e20)[:, 7] == bias[7]).all()


def test_weights_in_24_bits_round_no_more_than_sums_do() -> None:
    random = torch.Generator().manual_seed(3)
    w, x = torch.randn(1000, 1024, generator=random), torch.randn(50, 1024, generator=random)
    exact = x.double() @ w.double().T
    errors = [(made(w, None, size)(x) - exact).abs().mean() for size in (3, 4)]
    assert errors[0] < 1.3 * errors[1]


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_is_no_number_stays_none_and_stays_alone(size: int) -> None:
    w = weight(35, 20, size)
    x = torch.randn(9, 20)
    x[2, 3] = float("inf")
    found = made(w, None, size)(x)
    assert not found[2].isfinite().all()
    assert found[[0, 1, *range(3, 9)]].isfinite().all()
    w[34, 5] = float("nan")  # the last output, beside which a panel has none
    found = made(w, None, 4)(torch.randn(9, 20))
    assert found[:, 34].isnan().all()
    assert found[:, :34].isfinite().all()


def test_nothing_else_is_served() -> None:
    w = weight(32, 8, 2)
    assert float_product(w.bfloat16(), None) is None
    assert float_product(w[:0], None) is None
    assert float_product(w[:, :0], None) is None
    with pytest.raises(ValueError, match="expected rows of 8 numbers in float32"):
        made(w, None, 2)(torch.randn(2, 9))


def test_a_projection_is_packed_or_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    w, bias, x = weight(17, 32, 4), torch.randn(17), torch.randn(50, 32)
    packed = projection(w, bias)
    assert isinstance(packed, PackedProjection)
    monkeypatch.setattr(product, "library", lambda: None)
    plain = projection(w, bias)
    assert isinstance(plain, Projection)
    torch.testing.assert_close(packed(x), plain(x), rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(projection(w, None)(x), x @ w.T)
