"""Descriptions of encoder and decoder layers for compiled code, as in blocks.h and products.h."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from knnmt.engine.layers import AnyProjection, Norm
from knnmt.engine.product import Matrix

ACTIVATIONS = {"relu": 0, "gelu": 1, "swish": 2}
_LARGEST_SIZE = 2**29  # of inputs or outputs, which are 32-bit numbers in compiled code


class CompiledNorm(ctypes.Structure):
    """As in blocks.h."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


def compiled_norm(norm: Norm | None) -> CompiledNorm:
    """A norm for compiled code; it has no weights if there is no norm."""
    return CompiledNorm() if norm is None else CompiledNorm(norm.weight.data_ptr(), norm.bias.data_ptr())


def matrices_of(
    layers: Sequence[Sequence[AnyProjection]], expected: Sequence[tuple[int | None, int | None]]
) -> list[list[Matrix]] | None:
    """The matrices of each layer's projections. None without layers, or if some are not compiled or have other sizes.

    expected: inputs and outputs of a layer's projections; None for the one size that only the weights show
    """
    found = [[one.compiled.matrix for one in mine if one.compiled is not None] for mine in layers]
    if not found or any(len(mine) < len(expected) for mine in found):
        return None
    hidden = [one.outputs for one, (_, outputs) in zip(found[0], expected, strict=True) if outputs is None]
    sizes = [tuple(hidden[0] if size is None else size for size in pair) for pair in expected]
    if max(max(pair) for pair in sizes) > _LARGEST_SIZE:
        return None
    return found if all([(one.inputs, one.outputs) for one in mine] == sizes for mine in found) else None
