"""Products on a CPU with weights in panels, in compiled code: what float16 and int8 weights have in common."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor


class Matrix(ctypes.Structure):
    """As in products.h."""

    _fields_ = (
        ("digits", ctypes.c_int32),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("panels", "bias", "scales", "starts")),
    )


class CompiledProduct:
    """x W + b for rows of float32; a row does not depend on the other rows.

    panels: W as products.h has it
    bias, scales, starts: (outputs,), or None where there are none
    digits: that a number of a row gets in int8; 0 where weights are in float16
    """

    def __init__(
        self,
        native: ctypes.CDLL,
        shape: tuple[int, int],
        panels: Tensor,
        bias: Tensor | None,
        scales: Tensor | None = None,
        starts: Tensor | None = None,
        digits: int = 0,
    ) -> None:
        self._native = native
        self._inputs, self._outputs = shape
        self._kept = (panels, None if bias is None else bias.contiguous(), scales, starts)
        places = (None if tensor is None else tensor.data_ptr() for tensor in self._kept)
        self.matrix = Matrix(digits, *shape, *places)
        self._matrix_at = ctypes.addressof(self.matrix)
        self._scratch_bytes = digits * ((self._inputs + 3) // 4 * 4) + 4 if digits else 0  # of a row

    def __call__(self, x: Tensor) -> Tensor:
        return self._run(self._native.knnmt_product, x)

    def log_probabilities(self, x: Tensor) -> Tensor:
        """The logarithms of the softmax of the product."""
        return self._run(self._native.knnmt_log_probabilities, x)

    def _run(self, function: Any, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.shape[1] != self._inputs:  # of which compiled code would read other memory
            raise ValueError(f"expected rows of {self._inputs} numbers in float32, got {tuple(x.shape)} in {x.dtype}")
        x = x.contiguous()
        rows = len(x)
        y = torch.empty((rows, self._outputs))
        scratch = torch.empty(rows * self._scratch_bytes, dtype=torch.uint8)
        places = (x.data_ptr(), y.data_ptr(), scratch.data_ptr())
        function(self._matrix_at, *places, rows, torch.get_num_threads())
        return y
