"""Descriptions of encoder and decoder layers for compiled code, as in blocks.h and products.h."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from knnmt.engine.architecture import Architecture
from knnmt.engine.blocks import Embedding
from knnmt.engine.layers import AnyProjection, Norm
from knnmt.engine.product import Matrix

_ACTIVATIONS = {"relu": 0, "gelu": 1, "swish": 2}
_LARGEST_SIZE = 2**29  # of inputs or outputs, which are 32-bit numbers in compiled code


class CompiledNorm(ctypes.Structure):
    """As in blocks.h."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


def compiled_norm(norm: Norm | None) -> CompiledNorm:
    """A norm for compiled code; it has no weights if there is no norm."""
    return CompiledNorm() if norm is None else CompiledNorm(norm.weight.data_ptr(), norm.bias.data_ptr())


class CompiledStack(ctypes.Structure):
    """An encoder or a decoder, as in encoder.cpp and decoder.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "dim", "heads", "hidden", "activation", "norm_first")),
        ("epsilon", ctypes.c_float),
        ("layer", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("vocabulary", "longest")),
        *((name, ctypes.c_void_p) for name in ("tokens", "positions")),
        ("embedding_norm", CompiledNorm),
        ("last_norm", CompiledNorm),
    )


def compiled_stack(
    shape: Architecture,
    heads: int,
    hidden: int,
    layers: ctypes.Array[Any],
    embedding: Embedding,
    last_norm: Norm | None,
) -> CompiledStack:
    """The description of an encoder or a decoder. It refers to memory of the layers, the embedding and the norm.

    hidden: the width between the two products of the feed-forward block
    """
    return CompiledStack(
        len(layers),
        shape.dim,
        heads,
        hidden,
        _ACTIVATIONS[shape.activation],
        shape.norm_first,
        shape.norm_epsilon,
        ctypes.addressof(layers),
        len(embedding.tokens),
        len(embedding.positions),
        embedding.tokens.data_ptr(),
        embedding.positions.data_ptr(),
        compiled_norm(embedding.norm),
        compiled_norm(last_norm),
    )


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
