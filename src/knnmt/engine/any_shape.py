"""Attention on a GPU with kernels that accept any shape.

PyTorch prefers cuDNN on some GPUs, and cuDNN makes a plan for every new shape, which takes about 20 ms. Most batches
have a shape of their own, and so do the steps of a search that is not captured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside = 0  # callers inside `any_shape` now, not counting those that found cuDNN switched off by other code


@contextmanager
def any_shape(device: torch.device) -> Iterator[None]:
    """Switch cuDNN's attention off inside the context. PyTorch can only switch it for the whole process."""
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
