"""Tests on the CPU and on a GPU, and what only a GPU can be asked. `make test-cuda` runs all that needs one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
import torch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
Result = TypeVar("Result")


@contextmanager
def without_waiting() -> Iterator[None]:
    """Within it, waiting for the GPU is an error."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode")  # that it is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def captured(step: Callable[[], Result]) -> tuple[Callable[[], None], Result]:
    """A step that was run before, captured in a CUDA graph: what replays it, and where its result then stands."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # PyTorch wants a step to be run on another stream before it is captured
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result
