"""The smallest numbers of rows are those that sorting finds, on every device."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from devices import DEVICES
from knnmt.index.selecting import columns_of_smallest


def numbers(kind: str, rows: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(rows + columns)
    values = torch.randn((rows, columns), generator=generator)
    if kind == "near one another":
        return 1000 + values / 1000
    if kind == "few different":
        return (2 * values).round()
    if kind == "infinite":
        return values.masked_fill(values > -0.5, float("inf"))
    return values * 10 ** values.roll(1, 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["of all sizes", "near one another", "few different", "infinite"])
@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [(1, 1, 1), (3, 7, 7), (5, 1000, 10), (2, 1024, 1), (4, 17_617, 164), (2, 50_000, 999), (300, 600, 10)],
)
def test_the_smallest_are_found_once_each(device: str, kind: str, rows: int, columns: int, k: int) -> None:
    values = numbers(kind, rows, columns)
    chosen = columns_of_smallest(values.to(device), k).cpu()
    assert chosen.shape == (rows, k)
    assert all(len(set(row)) == k for row in chosen.tolist())
    found = values.gather(1, chosen).sort(1).values
    torch.testing.assert_close(found, values.sort(1).values[:, :k], rtol=0, atol=0)


@pytest.mark.cuda
def test_it_is_compiled_on_a_gpu() -> None:
    from knnmt.native.gpu import kernel

    assert all(kernel(name, torch.device("cuda", 0)) is not None for name in ("select", "mix"))
