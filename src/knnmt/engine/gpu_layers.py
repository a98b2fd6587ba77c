"""Parts of a decoder layer that are one kernel each on a GPU, where PyTorch needs several.

A step of a small model on a GPU takes as long as its kernels are many. Each function returns None if the kernel cannot
be used; the caller then computes the same with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from knnmt.native.gpu import kernel

_HEAD_DIMS = (16, 32, 64, 128)  # lanes of a warp share them evenly
_ROWS = (1, 2, 4, 8, 16)  # of a sentence in a block; a kernel is compiled for each
_MAX_NUMBERS = 1024  # of a head and its rows, in the shared memory of a block
_BLOCKS = 256  # about as many as a GPU runs side by side; with fewer, rows of a sentence are divided among blocks
_MAX_DIM = 2048
_WARPS = 4  # rows in a block of add_norm.cu


def attended(projected: Tensor, slots: Tensor, mask: Tensor, places: Tensor | None = None) -> Tensor | None:
    """Attention of all heads, (sentences * rows, dim), as `layers.attend` computes it.

    projected: (sentences * rows, dim), queries, or (sentences * rows, 3 * dim), queries, keys and values
    slots: (sentences, seen, 2, heads, head_dim), which gets these keys and values first
    mask: (sentences, 1, rows or 1, seen); places: (sentences or 1, rows), the slots of the new keys and values
    """
    sentences, seen, _, heads, head_dim = slots.shape
    rows, dim = len(projected) // sentences, heads * head_dim
    fits = head_dim in _HEAD_DIMS and rows <= _ROWS[-1] and _at_least(rows) * head_dim <= _MAX_NUMBERS
    if not fits or slots.stride()[1:] != (2 * dim, dim, head_dim, 1) or mask.stride(3) != 1:
        return None
    of_block = _at_least(max(1, min(rows, rows * sentences * heads // _BLOCKS)))
    compiled = _compiled("attend", projected, HEAD_DIM=head_dim, ROWS=of_block)
    if compiled is None:
        return None
    found = torch.empty((len(projected), dim), dtype=projected.dtype, device=projected.device)
    at = projected if places is None else places
    compiled(
        grid=(sentences, heads * -(-rows // of_block), 1),
        block=(128, 1, 1),
        args=[
            projected.contiguous(),
            projected.shape[1] // dim,
            rows,
            heads,
            slots,
            slots.stride(0),
            seen,
            at,
            0 if len(at) == 1 else at.stride(0),
            mask,
            mask.stride(0),
            0 if mask.shape[2] == 1 else mask.stride(2),
            found,
        ],
    )
    return found


def normalised_sum(x: Tensor, other: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor | None:
    """The layer norm of x + other, (rows, dim) each."""
    rows, dim = x.shape
    compiled = _compiled("add_norm", x, DIM=dim) if dim <= _MAX_DIM and dim % 2 == 0 else None
    if compiled is None:
        return None
    found = torch.empty_like(x)
    compiled(
        grid=(-(-rows // _WARPS), 1, 1),
        block=(32 * _WARPS, 1, 1),
        args=[x.contiguous(), other.contiguous(), weight, bias, epsilon, rows, found],
    )
    return found


def embedded(tokens: Tensor, positions: Tensor, table: Tensor, of_positions: Tensor) -> Tensor | None:
    """The sum of both embeddings, (tokens, dim). positions: as many as tokens in the same order, or one for all."""
    compiled = _compiled("embed", table) if positions.numel() in (1, tokens.numel()) else None
    if compiled is None:
        return None
    found = torch.empty((tokens.numel(), table.shape[1]), dtype=table.dtype, device=table.device)
    sizes = [table, len(table), of_positions, len(of_positions), table.shape[1]]
    compiled(
        grid=(tokens.numel(), 1, 1),
        block=(128, 1, 1),
        args=[tokens.contiguous(), positions.contiguous(), int(positions.numel() > 1), *sizes, found],
    )
    return found


def _at_least(rows: int) -> int:
    return next(size for size in _ROWS if size >= rows)


def _compiled(name: str, like: Tensor, **constants: int) -> Callable[..., Any] | None:
    if like.dtype not in (torch.float16, torch.float32):
        return None
    return kernel(name, like.device, HALF=int(like.dtype == torch.float16), **constants)
