"""The smallest numbers of rows are those that sorting finds, on every device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import cpp_extension

from knnmt.index.selecting import columns_of_smallest
from knnmt.native.gpu import kernel
from support.devices import DEVICES


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
    assert all(kernel(name, torch.device("cuda", 0)) is not None for name in ("select", "tiles", "measure", "mix"))


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Which device is the current one, last, without one."""
    devices = [torch.device("cuda", 0)]

    @contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        devices.append(chosen)
        yield
        devices.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    return devices


def test_it_is_compiled_for_its_device_and_launched_there(
    current: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)  # as where PyTorch came without CUDA's toolkit
    used: list[Any] = []

    def compiled(source: str, name: str) -> Any:
        cpp_extension.include_paths("cuda")  # as PyTorch does, which refuses where there is no toolkit
        assert name in source
        used.append(current[-1])
        return lambda **how: used.append((current[-1], how))

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compiled)
    second = torch.device("cuda", 1)
    launch = kernel.__wrapped__("mix", second)
    assert launch is not None
    launch(grid=(2, 1, 1))
    assert used == [second, (second, {"grid": (2, 1, 1)})]
    assert cpp_extension.CUDA_HOME is None


@pytest.mark.parametrize("error", [ImportError, OSError, RuntimeError])
def test_where_it_cannot_be_compiled_nothing_depends_on_it(
    current: list[torch.device], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def compiled(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compiled)
    assert kernel.__wrapped__("select", torch.device("cuda", 0)) is None
