"""The encoder in compiled code: one call runs the layers of `transformer` for all sentences, without padding.

It serves a CPU with weights in float32 or int8. PyTorch does everything else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from knnmt.engine.architecture import Architecture
from knnmt.engine.blocks import DecoderLayer, Embedding, EncoderLayer
from knnmt.engine.compiled_layers import CompiledNorm, compiled_norm, compiled_stack, matrices_of
from knnmt.engine.layers import Norm
from knnmt.engine.product import Matrix
from knnmt.engine.rows import Rows
from knnmt.errors import InputError
from knnmt.native import library


class _Layer(ctypes.Structure):
    """As in encoder.cpp."""

    _fields_ = (
        *((name, Matrix) for name in ("attention_in", "attention_out", "inner", "outer")),
        *((name, CompiledNorm) for name in ("attention_norm", "feed_forward_norm")),
    )


class CompiledEncoder:
    """The encoder's layers, and the projections from states to the decoder's keys and values. It keeps them alive."""

    def __init__(
        self,
        native: ctypes.CDLL,
        shape: Architecture,
        embedding: Embedding,
        layers: Sequence[EncoderLayer],
        matrices: tuple[list[list[Matrix]], list[list[Matrix]]],
        last_norm: Norm | None,
    ) -> None:
        """matrices: those of the encoder's layers, and one for each of the decoder's layers"""
        self._native = native
        self._dim = shape.dim
        self._kept = (embedding, layers, last_norm)
        mine, decoders = matrices
        residuals = [(each.attention_residual, each.feed_forward_residual) for each in layers]
        self._layers = (_Layer * len(layers))(
            *(
                _Layer(*products, *(compiled_norm(each.norm) for each in norms))
                for products, norms in zip(mine, residuals, strict=True)
            )
        )
        self._source = (Matrix * len(decoders))(*chain.from_iterable(decoders))
        self._encoder = compiled_stack(
            shape, shape.encoder_heads, mine[0][2].outputs, self._layers, embedding, last_norm
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
        mine = matrices_of(projections, [(dim, 3 * dim), (dim, dim), (dim, None), (None, dim)])
        decoders = matrices_of([(each.cross_key_value,) for each in decoder], [(dim, 2 * dim)])
        if native is None or mine is None or decoders is None:
            return None
        return cls(native, shape, embedding, layers, (mine, decoders), last_norm)

    def states(self, sources: Rows) -> Tensor:
        """(sentences, longest, dim), with zeros as padding"""
        lengths, longest = sources.lengths, sources.longest
        tokens = np.ascontiguousarray(sources.numbers, np.int64)
        states = torch.empty((len(sources), longest, self._dim))
        arguments = (tokens.ctypes.data, lengths.ctypes.data, len(sources), longest, states.data_ptr())
        if not self._native.knnmt_encode(ctypes.addressof(self._encoder), *arguments, torch.get_num_threads()):
            raise InputError(
                f"a source was given with a token that is not one of the model's {self._encoder.vocabulary:,}, "
                f"or with {longest} tokens, of which the model has {self._encoder.longest} positions"
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
        made = [torch.empty((sentences, longest, 2, heads, dim // heads)) for _ in self._source]
        places = (ctypes.c_void_p * len(made))(*(each.data_ptr() for each in made))
        arguments = (len(made), states.data_ptr(), (ctypes.c_int64 * sentences)(*lengths), sentences, longest, places)
        self._native.knnmt_source_attention(self._source, *arguments, torch.get_num_threads())
        return made
