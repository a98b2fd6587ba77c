"""Memory for weights in large pages, where the system has them.

Each step reads all weights. With pages of 4 KB, a new page begins after every 64 cache lines: its address must be
looked up, and the CPU stops fetching ahead. Linux gives large pages (2 MB) to memory that asks for them.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress

import torch
from torch import Tensor

_PAGE = 2 << 20
_BLOCK = 16 * _PAGE  # of several weights: memory that is not written is not taken
_ALIGNED = 64  # bytes: a cache line

_lock = threading.Lock()
_block, _used = torch.empty(0, dtype=torch.uint8), 0


def in_large_pages(tensor: Tensor) -> Tensor:
    """A contiguous copy of a CPU tensor, beside the one that was copied before; the tensor itself if it is empty."""
    needed = tensor.numel() * tensor.element_size()
    if not needed or not hasattr(mmap, "MADV_HUGEPAGE"):
        return tensor.contiguous()
    copied = _room(needed).view(tensor.dtype).view(tensor.shape)
    return copied.copy_(tensor)


def _room(needed: int) -> Tensor:
    """So many bytes."""
    global _block, _used
    with _lock:
        if _used + needed > len(_block):
            _block, _used = _mapped(max(needed, _BLOCK)), 0
        first, _used = _used, _used + -(-needed // _ALIGNED) * _ALIGNED
        return _block[first : first + needed]


def _mapped(size: int) -> Tensor:
    """Memory that begins with a large page. It is free again when no tensor refers to it."""
    size = -(-size // _PAGE) * _PAGE
    memory = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # the system has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    every = torch.frombuffer(memory, dtype=torch.uint8)
    first = -every.data_ptr() % _PAGE
    return every[first : first + size]
