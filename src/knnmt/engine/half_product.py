"""Products of a few rows on a CPU with weights read in float16, in compiled code.

A step of a small batch takes as long as reading the weights. Those that float16 holds exactly, as many published
checkpoints have them, are read in half the time; nothing is rounded, and a row does not depend on the other rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from knnmt.engine.compiled_product import CompiledProduct
from knnmt.native import library

MOST_ROWS = 40  # with more of them, arithmetic is what takes time, and PyTorch is as fast


def half_product(weight: Tensor, bias: Tensor | None) -> CompiledProduct | None:
    """For a weight (in, out), or None: nothing was compiled, not float32 on a CPU, or something would be lost."""
    native = library()
    if native is None or weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None
    inputs, outputs = weight.shape
    panel = native.knnmt_panel()
    if outputs % panel or not torch.equal(weight.half().float(), weight):
        return None
    panels = weight.half().view(inputs, -1, panel).transpose(0, 1).contiguous()
    return CompiledProduct(native, (inputs, outputs), panels, bias)
