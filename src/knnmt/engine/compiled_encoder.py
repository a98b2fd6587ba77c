"""The encoder in compiled code: one call runs the layers of `transformer` for all sentences, without padding.

It serves a CPU with weights in float32 or int8. PyTorch does everything else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from knnmt.engine.architecture import Architecture
from knnmt.engine.blocks import DecoderLayer, Embedding, EncoderLayer
from knnmt.engine.compiled_layers import compiled_layers, compiled_stack, products_of
from knnmt.engine.layers import Norm
from knnmt.engine.product import CompiledProduct
from knnmt.engine.rows import Rows
from knnmt.errors import InputError
from knnmt.native import library
from knnmt.native.structures import address


class CompiledEncoder:
    """The encoder's layers, and the projections from states to the decoder's keys and values. It keeps them alive."""

    def __init__(
        self,
        native: ctypes.CDLL,
        shape: Architecture,
        embedding: Embedding,
        layers: Sequence[EncoderLayer],
        products: tuple[list[list[CompiledProduct]], list[list[CompiledProduct]]],
        last_norm: Norm | None,
    ) -> None:
        """products: those of the encoder's layers, and one for each of the decoder's layers"""
        self._native = native
        self._dim = shape.dim
        self._memory = (embedding, layers, last_norm)
        mine, of_decoder = products
        norms = [(each.attention_residual.norm, each.feed_forward_residual.norm) for each in layers]
        self._layers = compiled_layers("EncoderLayer", mine, norms)
        self._source = np.concatenate([product.matrix for each in of_decoder for product in each])
        hidden = mine[0][2].outputs
        self._encoder = compiled_stack(
            "Encoder", shape, shape.encoder_heads, hidden, self._layers, embedding, last_norm
        )

    @classmethod
    def of(
        cls,
        shape: Architecture,
        embedding: Embedding,
        layers: Sequence[EncoderLayer],
        last_norm: Norm | None,
        decoder: Sequence[DecoderLayer],
    ) -> CompiledEncoder | None:
        """The encoder of these layers. None if not all of their products are compiled, or if the layers differ."""
        native = library()
        dim = shape.dim
        projections = [
            (each.attention_in, each.attention_out, each.feed_forward.inner, each.feed_forward.outer) for each in layers
        ]
        mine = products_of(projections, [(dim, 3 * dim), (dim, dim), (dim, None), (None, dim)])
        decoders = products_of([(each.cross_key_value,) for each in decoder], [(dim, 2 * dim)])
        if native is None or mine is None or decoders is None:
            return None
        return cls(native, shape, embedding, layers, (mine, decoders), last_norm)

    def states(self, sources: Rows) -> Tensor:
        """(sentences, longest, dim), with zeros as padding"""
        lengths, longest = sources.lengths, sources.longest
        tokens = np.ascontiguousarray(sources.numbers, np.int64)
        states = torch.empty((len(sources), longest, self._dim))
        arguments = (tokens.ctypes.data, lengths.ctypes.data, len(sources), longest, states.data_ptr())
        if not self._native.knnmt_encode(address(self._encoder), *arguments, torch.get_num_threads()):
            raise InputError(
                f"a source was given with a token that is not one of the model's {self._encoder['vocabulary'][0]:,}, "
                f"or with {longest} tokens, of which the model has {self._encoder['longest'][0]} positions"
            )
        return states

    def source_attention(self, states: Tensor, lengths: Sequence[int], heads: int) -> list[Tensor]:
        """Each layer's keys and values, (sentences, longest, 2, heads, head_dim), from states of these lengths."""
        sentences, longest, dim = states.shape
        if dim != self._dim or len(lengths) != sentences or not all(0 <= length <= longest for length in lengths):
            raise ValueError(
                f"expected states of {self._dim} numbers and as many as {lengths}, got {tuple(states.shape)}"
            )
        states = states.float().contiguous()
        found = [torch.empty((sentences, longest, 2, heads, dim // heads)) for _ in self._source]
        places, of_sentences = np.array([each.data_ptr() for each in found], np.uintp), np.array(lengths, np.int64)
        arguments = (len(found), states.data_ptr(), address(of_sentences), sentences, longest, address(places))
        self._native.knnmt_source_attention(address(self._source), *arguments, torch.get_num_threads())
        return found
