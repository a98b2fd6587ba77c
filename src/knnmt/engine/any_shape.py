"""Attention on a GPU by kernels that take any shape.

PyTorch prefers cuDNN on some GPUs, and cuDNN makes a plan for every shape that it has not met, which takes some 20 ms.
Most batches have shapes of their own, and so have the steps of a search that is not recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside = 0  # how many are in `any_shape` now, of those that have begun since cuDNN was allowed


@contextmanager
def any_shape(device: torch.device) -> Iterator[None]:
    """Do without cuDNN's attention meanwhile, which PyTorch lets a process switch only as a whole."""
    global _inside
    if device.type != "cuda":
        yield
        return
    with _lock:
        counts = _inside > 0 or torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
        if counts:
            _inside += 1
            torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        if counts:
            with _lock:
                _inside -= 1
                if not _inside:
                    torch.backends.cuda.enable_cudnn_sdp(True)
