"""A step of the decoder in compiled code: one call runs the layers of `transformer` for a few new tokens per row.

It serves the usual case of decoding: a CPU, few new tokens per row, no attention weights requested, and model weights
in float32 or int8. PyTorch does everything else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from knnmt.engine.architecture import Architecture
from knnmt.engine.blocks import DecoderLayer, Embedding
from knnmt.engine.compiled_layers import compiled_layers, compiled_stack, products_of
from knnmt.engine.layers import Norm
from knnmt.engine.product import CompiledProduct
from knnmt.engine.state import TransformerState
from knnmt.errors import InputError
from knnmt.native import library
from knnmt.native.structures import address, made

MAX_TOGETHER = 16  # new tokens per row: for more, PyTorch's products are as fast, and its attention is faster


class CompiledDecoder:
    """The decoder's layers. This object keeps their tensors alive.

    layers: how many there are
    """

    def __init__(
        self,
        native: ctypes.CDLL,
        shape: Architecture,
        embedding: Embedding,
        layers: Sequence[DecoderLayer],
        products: Sequence[Sequence[CompiledProduct]],
        last_norm: Norm | None,
    ) -> None:
        self._native = native
        self._dim, self.layers = shape.dim, len(layers)
        self._memory = (embedding, layers, last_norm)
        norms = [
            (each.self_residual.norm, each.cross_residual.norm, each.feed_forward_residual.norm) for each in layers
        ]
        self._layers = compiled_layers("Layer", products, norms)
        hidden = products[0][4].outputs
        self._decoder = compiled_stack(
            "Decoder", shape, shape.decoder_heads, hidden, self._layers, embedding, last_norm
        )

    @classmethod
    def of(
        cls, shape: Architecture, embedding: Embedding, layers: Sequence[DecoderLayer], last_norm: Norm | None
    ) -> CompiledDecoder | None:
        """The decoder of these layers. None if not all of their products are compiled, or if the layers differ."""
        native = library()
        projections = [
            (
                each.self_in,
                each.self_out,
                each.cross_query,
                each.cross_out,
                each.feed_forward.inner,
                each.feed_forward.outer,
            )
            for each in layers
        ]
        dim = shape.dim
        expected = [(dim, 3 * dim), (dim, dim), (dim, dim), (dim, dim), (dim, None), (None, dim)]
        products = products_of(projections, expected)
        if native is None or products is None:
            return None
        return cls(native, shape, embedding, layers, products, last_norm)

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """tokens (sentences, width, m) -> representations (sentences, width, m, dim)"""
        sentences, width, together = tokens.shape
        if (sentences, width) != (state.sentences, state.width):
            rows = (state.sentences, state.width)
            raise ValueError(f"expected tokens {rows}, as the state has rows, got {tuple(tokens.shape[:2])}")
        length, used = state.length, state.make_room(together)
        capacity, longest = state.slots.shape[2], state.cross[0].shape[1]
        cross = np.array([each.data_ptr() for each in state.cross], np.uintp)
        places = np.arange(sentences)
        of_sentences = made("Sentence", sentences, width=width, length=length, used=used, source=state.sources)
        of_sentences["slots"] = state.slots.data_ptr() + places * (4 * state.slots.stride(1))
        of_sentences["visible"] = state.visible.data_ptr() + places * (4 * state.visible.stride(0))
        of_sentences["cross"] = address(cross)
        of_sentences["cross_offset"] = places * (2 * self._dim * longest)
        stride = state.slots.stride(0)
        batch = made("State", sentences=sentences, together=together, capacity=capacity, layer_stride=stride)
        batch["sentence"] = address(of_sentences)
        tokens = tokens.to(torch.long).contiguous()
        representations = torch.empty((*tokens.shape, self._dim))
        given = (self.address, address(batch), tokens.data_ptr(), representations.data_ptr())
        if not self._native.knnmt_decode(*given, torch.get_num_threads()):
            raise self.refusal()
        return representations

    @property
    def address(self) -> int:
        """Where compiled code finds the decoder."""
        return address(self._decoder)

    def refusal(self) -> InputError:
        """The error if compiled code refuses a step."""
        return InputError(
            f"a step was asked for with a token that is not one of the model's {self._decoder['vocabulary'][0]:,}, "
            f"or after more than its {self._decoder['longest'][0]} positions"
        )
