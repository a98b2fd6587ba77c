"""Attention on a GPU by kernels that take any shape.

PyTorch prefers cuDNN on some GPUs, and cuDNN makes a plan for every shape that it has not met. For passes over texts
whose batches all have shapes of their own, that takes many times as long as the pass. Loops whose shapes stay the same
are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def any_shape(device: torch.device) -> Iterator[None]:
    """Do without cuDNN's attention meanwhile, which PyTorch lets a process switch only as a whole."""
    enabled = device.type == "cuda" and torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    if not enabled:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
