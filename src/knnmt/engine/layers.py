"""The parts of a transformer layer, for inference only: plain tensors and functions, without training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.engine import gpu_layers
from knnmt.engine.architecture import Activation
from knnmt.engine.product import CompiledProduct, Int8Projection, float_product

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": functional.gelu,
    "swish": lambda x: functional.silu(x, inplace=True),
}


@dataclass(frozen=True, slots=True)
class Projection:
    """x W^T + b over rows, in PyTorch.

    weight: (in, out), transposed and contiguous in memory, which is faster on a CPU
    bias: (out,) or None
    """

    weight: Tensor
    bias: Tensor | None

    @property
    def compiled(self) -> None:
        return None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)


@dataclass(frozen=True, slots=True)
class PackedProjection:
    """The same in compiled code. The weight is stored once, in panels."""

    compiled: CompiledProduct

    def __call__(self, x: Tensor) -> Tensor:
        return self.compiled(x)


def projection(weight: Tensor, bias: Tensor | None, of_steps: bool = False) -> Projection | PackedProjection:
    """The projection with a weight (out, in), in compiled code if possible; `of_steps` as in `float_product`."""
    compiled = float_product(weight, bias, of_steps)
    return Projection(weight.t().contiguous(), bias) if compiled is None else PackedProjection(compiled)


AnyProjection = Projection | PackedProjection | Int8Projection


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalisation over the last dimension."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


@dataclass(frozen=True, slots=True)
class Residual:
    """The residual sum around a block with its layer norm, before the block (pre-norm) or after the sum (post-norm)."""

    norm: Norm
    norm_first: bool

    def __call__(self, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return block(self.norm(x)).add_(x)
        found = block(x)
        normal = gpu_layers.normalised_sum(x, found, self.norm.weight, self.norm.bias, self.norm.epsilon)
        return self.norm(found.add_(x)) if normal is None else normal


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The position-wise block: a wider projection, an activation, and a projection back."""

    inner: AnyProjection
    outer: AnyProjection
    activation: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        if (
            x.is_cuda
            and self.activation is torch.relu_
            and isinstance(self.inner, Projection)
            and self.inner.bias is not None
        ):
            return self.outer(torch._addmm_activation(self.inner.bias, x, self.inner.weight))
        return self.outer(self.activation(self.inner(x)))


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of all heads. Each row of the result holds the heads side by side.

    query: (sentences, rows, heads, head_dim); key, value: (sentences, seen, heads, head_dim)
    mask: added to the scores, broadcast over (sentences, heads, rows, seen)
    returns (sentences * rows, heads * head_dim)
    """
    attended = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask
    )
    return attended.transpose(1, 2).reshape(query.shape[0] * query.shape[1], -1)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """The weights that `attend` uses, averaged over heads: (sentences, rows, seen), float32."""
    products: Tensor = torch.einsum("srhd,sthd->shrt", query.float(), key.float())
    scores = products / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1).mean(1)
