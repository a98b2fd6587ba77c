"""Products of a few rows on a CPU with weights read in float16, in compiled code.

A step of a small batch takes as long as reading the weights. Those that float16 holds exactly, as many published
checkpoints have them, are read in half the time; nothing is rounded, and a row does not depend on the other rows.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from knnmt.native import library

MOST_ROWS = 40  # with more of them, arithmetic is what takes time, and PyTorch is as fast


class HalfProduct:
    """x W + b for at most MOST_ROWS rows of float32, with a second copy of W, in float16."""

    def __init__(self, native: ctypes.CDLL, weight: Tensor, bias: Tensor | None) -> None:
        self._product = native.knnmt_product
        self._inputs, self._outputs = weight.shape
        self._bias = bias if bias is None else bias.contiguous()
        self._bias_at = None if self._bias is None else self._bias.data_ptr()
        self._panels = weight.half().view(self._inputs, -1, native.knnmt_panel()).transpose(0, 1).contiguous()
        self._panels_at = self._panels.data_ptr()

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> HalfProduct | None:
        """For a weight (in, out), or None: nothing was compiled, not float32 on a CPU, or something would be lost."""
        native = library()
        if native is None or weight.device.type != "cpu" or weight.dtype != torch.float32:
            return None
        whole_panels = weight.shape[1] % native.knnmt_panel() == 0
        return cls(native, weight, bias) if whole_panels and torch.equal(weight.half().float(), weight) else None

    def __call__(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        y = torch.empty((len(x), self._outputs))
        places = (self._panels_at, self._bias_at, x.data_ptr(), y.data_ptr())
        self._product(*places, len(x), self._inputs, self._outputs, torch.get_num_threads())
        return y
