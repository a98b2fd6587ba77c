"""Products on a CPU with weights in panels: in float32, in float16 where that is exact, in 24 bits, or in int8.

A step of a small batch takes as long as reading the weights, and the panels are read in the order in which they lie.
Many published checkpoints have weights that float16 holds exactly: these are read in half the time, without rounding.
Other weights that steps read are stored as whole numbers of 24 bits with a scale for each output, and read in three
quarters of the time: each is within 2**-24 of the output's largest, which changes sums less than rounding them does.
In int8, each output and each row has a scale; sums are integers, so that compiled code and PyTorch get the same
results. A row never depends on the other rows.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.engine.large_pages import in_large_pages
from knnmt.native import library
from knnmt.native.structures import address, made

_LARGEST = 127  # the largest code; -128 stays unused, so that every code has its negative
_DIGIT = 128  # one step of the first digit is so many steps of the second
_LARGEST_24 = 2**23 - 1
_TOGETHER = 64  # panels that are rounded together, because that takes memory
_UNEVEN = 16  # a matrix stays in float32 if any output has a weight that is so many times as large as usual,
_SMALLEST, _GREATEST = 1e-30, 1e15  # or a largest one beyond these: scales and sums of squares are float32, too
_BYTES = {torch.float32: 4, torch.uint8: 3, torch.float16: 2, torch.int8: 1}  # of a weight, by the type of its panels
_EXACT = 1024  # so many products of two codes can be summed in float32 without rounding: 1024 * 127 * 127 < 2**24


class CompiledProduct:
    """x W + b for rows of float32; a row does not depend on the other rows.

    panels: W in the layout of products.h, in float32, float16, int8 or as bytes of whole numbers of 24 bits
    bias, scales, starts: one for each output, filled up to whole panels, or None
    address: where compiled code finds the product
    digits: number of int8 digits for each number of a row; 0 if the weights are of another type
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
        self.inputs, self.outputs = shape
        self._memory = (panels, None if bias is None else bias.contiguous(), scales, starts)
        self.matrix = made("Matrix", digits=digits, bytes=_BYTES[panels.dtype], inputs=shape[0], outputs=shape[1])
        for name, tensor in zip(("panels", "bias", "scales", "starts"), self._memory, strict=True):
            self.matrix[name] = 0 if tensor is None else tensor.data_ptr()
        self.address = address(self.matrix)
        self._scratch_bytes = digits * ((self.inputs + 3) // 4 * 4) + 4 if digits else 0  # for each row

    def __call__(self, x: Tensor) -> Tensor:
        return self._run(self._native.knnmt_product, x)

    def log_probabilities(self, x: Tensor) -> Tensor:
        """The log-softmax of the product."""
        return self._run(self._native.knnmt_log_probabilities, x)

    def _run(self, function: Any, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.shape[1] != self.inputs:  # compiled code would read beyond the end
            raise ValueError(f"expected rows of {self.inputs} numbers in float32, got {tuple(x.shape)} in {x.dtype}")
        x = x.contiguous()
        rows = len(x)
        y = torch.empty((rows, self.outputs))
        scratch = self.scratch(rows)
        places = (x.data_ptr(), y.data_ptr(), scratch.data_ptr())
        function(self.address, *places, rows, torch.get_num_threads())
        return y

    def scratch(self, rows: int) -> Tensor:
        """The memory that compiled code needs for so many rows."""
        return torch.empty(rows * self._scratch_bytes, dtype=torch.uint8)


def float_product(weight: Tensor, bias: Tensor | None, of_steps: bool = False) -> CompiledProduct | None:
    """The product with a weight (out, in). None without compiled code, if not float32 on a CPU, or for a size of 0.

    of_steps: it serves steps of few rows, which take as long as reading it, and may store the weight in 24 bits
    """
    native = library()
    if native is None or weight.device.type != "cpu" or weight.dtype != torch.float32 or not weight.numel():
        return None
    shape = weight.shape[1], len(weight)
    panel = native.knnmt_panel()
    more = -len(weight) % panel
    bias = None if bias is None else functional.pad(bias, (0, more))
    half = weight.half()
    exact = torch.equal(half.float(), weight)
    panels = functional.pad(half if exact else weight, (0, 0, 0, more)).view(-1, panel, shape[0]).transpose(1, 2)
    if exact or not of_steps or not _is_even(weight):
        return CompiledProduct(native, shape, in_large_pages(panels), bias)
    packed, scales = _in_24_bits(panels)
    return CompiledProduct(native, shape, packed, bias, scales)


def _is_even(weight: Tensor) -> bool:
    """Whether 24 bits hold each output's weights well: none is far larger than usual, or of an extreme size."""
    largest = weight.abs().amax(1)
    even = largest <= _UNEVEN * weight.square().mean(1).sqrt()
    usual = (largest == 0) | ((largest > _SMALLEST) & (largest < _GREATEST))
    return bool((even & usual).all())


def _in_24_bits(panels: Tensor) -> tuple[Tensor, Tensor]:
    """Panels (panels, inputs, outputs of a panel) as bytes, and the scale of each output."""
    count, inputs, panel = panels.shape
    scales = panels.abs().amax(1) / _LARGEST_24
    packed = in_large_pages(torch.empty((count, inputs, 3 * panel), dtype=torch.uint8))
    for first in range(0, count, _TOGETHER):
        some, into = slice(first, first + _TOGETHER), packed[first : first + _TOGETHER]
        steps = panels[some].double() / scales[some].double().clamp(min=torch.finfo(torch.float32).tiny)[:, None]
        numbers = steps.round().clamp(-_LARGEST_24, _LARGEST_24).int().contiguous()
        into[..., : 2 * panel] = (numbers >> 8).short().view(torch.uint8)
        into[..., 2 * panel :] = (numbers & 255).byte()
    return packed, scales.flatten()


class Int8Projection:
    """x W^T + b over rows, as `layers.Projection`, with W and x in int8.

    fine: two int8 digits for each number of x. After an activation function few numbers are large, and one digit, whose
        step must fit the largest, is too coarse for the others.
    codes: (out, in) int8; scales: (out,), the size of one step of each output's codes
    compiled: the same product in compiled code, or None
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
        """The same results as compiled code: products of floats are fast, and exact as long as sums are small."""
        numbers, steps = _in_steps(x, _LARGEST * _DIGIT if self._fine else _LARGEST)
        if self._fine:
            first = ((numbers + _DIGIT // 2) / _DIGIT).floor()
            sums = self._sums(first) * _DIGIT + self._sums(numbers - first * _DIGIT)
        else:
            sums = self._sums(numbers)
        y = sums * (self.scales * steps[:, None])
        return y if self.bias is None else y + self.bias

    def _sums(self, digits: Tensor) -> Tensor:
        """digits: (rows, in), integers in the range of int8"""
        weight = self.codes.float().t() if self._in_float32 is None else self._in_float32
        sums = torch.zeros((), dtype=torch.int32)
        for i in range(0, digits.shape[1], _EXACT):
            sums = sums + torch.mm(digits[:, i : i + _EXACT], weight[i : i + _EXACT]).to(torch.int32)
        return sums.float()


def _in_steps(rows: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Each row as whole steps, where its largest number is `largest` steps, and the size of a step, (rows,)."""
    furthest = rows.abs().amax(1)
    # The dividend is a tensor: PyTorch divides a plain number by multiplying with the reciprocal, which rounds twice.
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
    panels = in_large_pages(whole.view(-1, panel, whole.shape[1] // 4, 4).transpose(1, 2))
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
