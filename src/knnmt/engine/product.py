"""Products on a CPU with weights in panels: in float32, in float16 where that is exact, or in int8 with scales.

A step of a small batch takes as long as reading the weights, and the panels are read in the order in which they lie.
Weights that float16 holds exactly, as many published checkpoints have them, are read in half the time, and nothing is
rounded. In int8, outputs and rows have a scale each; sums are in whole numbers, so that compiled code and PyTorch find
the same. A row never depends on the other rows.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.native import library

_LARGEST = 127  # of a code: -128 stays unused, so that every number has its opposite
_DIGIT = 128  # the steps of a second digit that are one of the first
_EXACT = 1024  # products of two codes that float32 can add up without rounding: 1024 * 127 * 127 < 2**24


class Matrix(ctypes.Structure):
    """As in products.h."""

    _fields_ = (
        ("digits", ctypes.c_int32),
        ("half", ctypes.c_int32),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("panels", "bias", "scales", "starts")),
    )


class CompiledProduct:
    """x W + b for rows of float32; a row does not depend on the other rows.

    panels: W as products.h has it, in float32, float16 or int8
    bias, scales, starts: of each output, in whole panels, or None where there are none
    digits: that a number of a row gets in int8; 0 where weights are in another type
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
        self.matrix = Matrix(digits, panels.dtype == torch.float16, *shape, *places)
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


def float_product(weight: Tensor, bias: Tensor | None) -> CompiledProduct | None:
    """For a weight (out, in), or None: nothing was compiled, not float32 on a CPU, or a size of 0."""
    native = library()
    if native is None or weight.device.type != "cpu" or weight.dtype != torch.float32 or not weight.numel():
        return None
    outputs, inputs = weight.shape
    panel = native.knnmt_panel()
    more = -outputs % panel
    half = weight.half()
    exact = torch.equal(half.float(), weight)
    whole = functional.pad(half if exact else weight, (0, 0, 0, more))
    panels = whole.view(-1, panel, inputs).transpose(1, 2).contiguous()
    return CompiledProduct(native, (inputs, outputs), panels, None if bias is None else functional.pad(bias, (0, more)))


class Int8Projection:
    """x W^T + b over rows, as `layers.Projection`, with W and x in int8.

    fine: two digits of int8 for each number of x. After an activation function few numbers are large, and one digit in
        steps that fit the largest says little of the others.
    codes: (out, in) int8; scales: (out,), how much a step of each output's codes is
    compiled: the same in less time, or None
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, fine: bool = False) -> None:
        """weight: (out, in)"""
        numbers, self.scales = _in_steps(weight, _LARGEST)
        self.codes = numbers.to(torch.int8)
        self.bias = bias
        self._fine = fine
        self.compiled = _compiled(self.codes, self.scales, bias, fine)
        self._in_float32 = None if self.compiled else self.codes.float().t()

    def __call__(self, x: Tensor) -> Tensor:
        return self.in_pytorch(x) if self.compiled is None else self.compiled(x)

    def in_pytorch(self, x: Tensor) -> Tensor:
        """The numbers that compiled code finds: products of floats are faster, and exact where sums are small."""
        numbers, steps = _in_steps(x, _LARGEST * _DIGIT if self._fine else _LARGEST)
        if self._fine:
            first = ((numbers + _DIGIT // 2) / _DIGIT).floor()
            sums = self._sums(first) * _DIGIT + self._sums(numbers - first * _DIGIT)
        else:
            sums = self._sums(numbers)
        y = sums * (self.scales * steps[:, None])
        return y if self.bias is None else y + self.bias

    def _sums(self, digits: Tensor) -> Tensor:
        """digits: (rows, in), whole numbers of int8"""
        weight = self.codes.float().t() if self._in_float32 is None else self._in_float32
        sums = torch.zeros((), dtype=torch.int32)
        for i in range(0, digits.shape[1], _EXACT):
            sums = sums + torch.mm(digits[:, i : i + _EXACT], weight[i : i + _EXACT]).to(torch.int32)
        return sums.float()


def _in_steps(rows: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Each row in whole steps, of which its largest number has `largest`; and the size of a step, (rows,)."""
    furthest = rows.abs().amax(1)
    # Divided by a tensor: PyTorch divides a plain number by multiplying with the reciprocal, which rounds twice.
    steps = torch.where(furthest > 0, torch.full_like(furthest, largest) / furthest, 0)
    return (rows * steps[:, None]).round(), furthest / largest


def _compiled(codes: Tensor, scales: Tensor, bias: Tensor | None, fine: bool) -> CompiledProduct | None:
    native = library()
    if native is None:
        return None
    outputs, inputs = codes.shape
    panel = native.knnmt_panel()
    more = -outputs % panel
    whole = functional.pad(codes, (0, -inputs % 4, 0, more))
    panels = whole.view(-1, panel, whole.shape[1] // 4, 4).transpose(1, 2).contiguous()
    starts = -native.knnmt_offset() * whole.sum(1, dtype=torch.int32)
    return CompiledProduct(
        native,
        (inputs, outputs),
        panels,
        None if bias is None else functional.pad(bias, (0, more)),
        functional.pad(scales, (0, more)),
        starts.to(torch.int32),
        digits=2 if fine else 1,
    )
