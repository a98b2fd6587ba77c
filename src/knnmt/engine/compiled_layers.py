"""Descriptions of encoder and decoder layers for compiled code, as in blocks.h and products.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from knnmt.engine.architecture import Architecture
from knnmt.engine.blocks import Embedding
from knnmt.engine.layers import AnyProjection, Norm
from knnmt.engine.product import CompiledProduct
from knnmt.native.structures import address, made

_ACTIVATIONS = {"relu": 0, "gelu": 1, "swish": 2}
_LARGEST_SIZE = 2**29  # of inputs or outputs, which are 32-bit numbers in compiled code


def compiled_layers(
    kind: str, products: Sequence[Sequence[CompiledProduct]], norms: Sequence[Sequence[Norm | None]]
) -> NDArray[np.void]:
    """Layers as structures of a kind, whose products come first and then its norms."""
    layers = made(kind, len(products))
    names = layers.dtype.names or ()
    for layer, mine, of_layer in zip(layers, products, norms, strict=True):
        for name, product in zip(names, mine, strict=False):
            layer[name] = product.matrix[0]
        for name, norm in zip(names[len(mine) :], of_layer, strict=True):
            _put_norm(layer[name], norm)
    return layers


def compiled_stack(
    kind: str,
    shape: Architecture,
    heads: int,
    hidden: int,
    layers: NDArray[np.void],
    embedding: Embedding,
    last_norm: Norm | None,
) -> NDArray[np.void]:
    """An encoder or a decoder as a structure of a kind. It refers to memory of the layers, the embedding and the norm.

    hidden: the width between the two products of the feed-forward block
    """
    stack = made(kind, layer=address(layers), vocabulary=len(embedding.tokens), longest=len(embedding.positions))
    stack["tokens"], stack["positions"] = embedding.tokens.data_ptr(), embedding.positions.data_ptr()
    of_shape = stack[0]["shape"]
    of_shape["layers"], of_shape["dim"], of_shape["heads"], of_shape["hidden"] = len(layers), shape.dim, heads, hidden
    of_shape["activation"], of_shape["norm_first"] = _ACTIVATIONS[shape.activation], shape.norm_first
    of_shape["epsilon"] = shape.norm_epsilon
    _put_norm(stack[0]["embedding_norm"], embedding.norm)
    _put_norm(stack[0]["last_norm"], last_norm)
    return stack


def _put_norm(place: np.void, norm: Norm | None) -> None:
    """A norm for compiled code; it has no weights if there is no norm."""
    if norm is not None:
        place["weight"], place["bias"] = norm.weight.data_ptr(), norm.bias.data_ptr()


def products_of(
    layers: Sequence[Sequence[AnyProjection]], expected: Sequence[tuple[int | None, int | None]]
) -> list[list[CompiledProduct]] | None:
    """The products of each layer's projections. None without layers, or if some are not compiled or have other sizes.

    expected: inputs and outputs of a layer's projections; None for the one size that only the weights show
    """
    found = [[one.compiled for one in mine if one.compiled is not None] for mine in layers]
    if not found or any(len(mine) < len(expected) for mine in found):
        return None
    hidden = [one.outputs for one, (_, outputs) in zip(found[0], expected, strict=True) if outputs is None]
    sizes = [tuple(hidden[0] if size is None else size for size in pair) for pair in expected]
    if max(max(pair) for pair in sizes) > _LARGEST_SIZE:
        return None
    return found if all([(one.inputs, one.outputs) for one in mine] == sizes for mine in found) else None
