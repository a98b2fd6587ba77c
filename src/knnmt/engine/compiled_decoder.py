"""A step of the decoder in compiled code: one call runs the layers of `transformer` for a few new tokens per row.

It serves the usual case of decoding: a CPU, few new tokens per row, no attention weights requested, and model weights
in float32 or int8. PyTorch does everything else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from knnmt.engine.architecture import Architecture
from knnmt.engine.blocks import DecoderLayer, Embedding
from knnmt.engine.compiled_layers import CompiledNorm, compiled_norm, compiled_stack, matrices_of
from knnmt.engine.layers import Norm
from knnmt.engine.product import Matrix
from knnmt.engine.state import StateInTurn, TransformerState
from knnmt.errors import InputError
from knnmt.native import library

MAX_TOGETHER = 16  # new tokens per row: for more, PyTorch's products are as fast, and its attention is faster


class _Layer(ctypes.Structure):
    """As in decoder.cpp."""

    _fields_ = (
        *((name, Matrix) for name in ("self_in", "self_out", "cross_query", "cross_out", "inner", "outer")),
        *((name, CompiledNorm) for name in ("self_norm", "cross_norm", "feed_forward_norm")),
    )


class _State(ctypes.Structure):
    """As in decoder.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("sentences", "width", "together")),
        *((name, ctypes.c_int64) for name in ("used", "capacity", "source", "layer_stride")),
        *((name, ctypes.c_void_p) for name in ("slots", "visible", "lengths", "cross", "cross_mask", "turns")),
    )


class CompiledDecoder:
    """The decoder's layers. This object keeps their tensors alive."""

    def __init__(
        self,
        native: ctypes.CDLL,
        shape: Architecture,
        embedding: Embedding,
        layers: Sequence[DecoderLayer],
        matrices: Sequence[Sequence[Matrix]],
        last_norm: Norm | None,
    ) -> None:
        self._native = native
        self._dim = shape.dim
        self._kept = (embedding, layers, last_norm)
        residuals = [(each.self_residual, each.cross_residual, each.feed_forward_residual) for each in layers]
        self._layers = (_Layer * len(layers))(
            *(
                _Layer(*mine, *(compiled_norm(each.norm) for each in norms))
                for mine, norms in zip(matrices, residuals, strict=True)
            )
        )
        self._decoder = compiled_stack(
            shape, shape.decoder_heads, matrices[0][4].outputs, self._layers, embedding, last_norm
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
        matrices = matrices_of(projections, expected)
        if native is None or matrices is None:
            return None
        return cls(native, shape, embedding, layers, matrices, last_norm)

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """tokens (sentences, width, m) -> representations (sentences, width, m, dim)"""
        if tokens.shape[:2] != state.lengths.shape:
            rows = tuple(state.lengths.shape)
            raise ValueError(f"expected tokens {rows}, as the state has rows, got {tuple(tokens.shape[:2])}")
        lengths, together = state.lengths.contiguous(), tokens.shape[2]
        before = state.make_room(together)
        shape = (state.sentences, state.width, together, before)
        return self._run(state, shape, tokens, lengths.data_ptr(), state.visible.data_ptr(), None)

    def step_in_turn(self, state: StateInTurn, tokens: Tensor, turns: Sequence[int]) -> Tensor:
        """tokens (rows,): turns[i] tokens of sentence i, sentence after sentence -> representations (rows, dim)"""
        sentences = len(state.lengths)
        if len(turns) != sentences or min(turns) < 0 or sum(turns) != len(tokens):
            raise ValueError(f"expected tokens of {sentences} sentences, got {list(turns)} and {len(tokens)} tokens")
        state.make_room(turns)
        shape = (len(turns), 1, 0, 0)
        lengths, new = (ctypes.c_int64 * sentences)(*state.lengths), (ctypes.c_int32 * sentences)(*turns)
        return self._run(state, shape, tokens, ctypes.addressof(lengths), None, ctypes.addressof(new))

    def ahead(self, state: TransformerState, output: Matrix, ahead: ctypes.Structure) -> int:
        """Make steps with one new token of each row, as knnmt_ahead in ahead.cpp; return how many were made.

        ahead: as in ahead.cpp; the state must have room for its steps
        """
        lengths = state.lengths.contiguous()
        of_state, cross = _described(
            state, (state.sentences, state.width, 1, state.used), lengths.data_ptr(), state.visible.data_ptr(), None
        )
        places = (ctypes.addressof(self._decoder), ctypes.addressof(of_state), ctypes.addressof(output))
        made = int(self._native.knnmt_ahead(*places, ctypes.addressof(ahead), torch.get_num_threads()))
        del cross  # which compiled code has read
        if made < 0:
            raise self._refused()
        state.made(made)
        return made

    def passes(self, state: StateInTurn, output: Matrix, given: Sequence[int]) -> int:
        """Make passes with several tokens of each sentence, as knnmt_passes in passes.cpp; -2 for a damaged store.

        given: where mixing, drafting, entries and passes are
        """
        of_state, cross = _described(state, (len(state.lengths), 1, 0, 0), 0, None, None)
        places = (ctypes.addressof(self._decoder), ctypes.addressof(of_state), ctypes.addressof(output))
        made = int(self._native.knnmt_passes(*places, *given, torch.get_num_threads()))
        del cross  # which compiled code has read
        if made == -1:
            raise self._refused()
        return made

    def _run(
        self,
        state: TransformerState | StateInTurn,
        shape: tuple[int, int, int, int],
        tokens: Tensor,
        lengths: int,
        visible: int | None,
        turns: int | None,
    ) -> Tensor:
        """shape: the fields sentences, width, together and used of `_State`"""
        of_state, cross = _described(state, shape, lengths, visible, turns)
        tokens = tokens.to(torch.long).contiguous()
        representations = torch.empty((*tokens.shape, self._dim))
        places = (ctypes.addressof(self._decoder), ctypes.addressof(of_state), tokens.data_ptr())
        sound = self._native.knnmt_decode(*places, representations.data_ptr(), torch.get_num_threads())
        del cross  # which compiled code has read
        if not sound:
            raise self._refused()
        return representations

    def _refused(self) -> InputError:
        return InputError(
            f"a step was asked for with a token that is not one of the model's {self._decoder.vocabulary:,}, "
            f"or after more than its {self._decoder.longest} positions"
        )


def _described(
    state: TransformerState | StateInTurn,
    shape: tuple[int, int, int, int],
    lengths: int,
    visible: int | None,
    turns: int | None,
) -> tuple[_State, ctypes.Array[Any]]:
    """A state for compiled code, and an array that it refers to. shape: sentences, width, together and used."""
    cross = (ctypes.c_void_p * len(state.cross))(*(each.data_ptr() for each in state.cross))
    described = _State(
        *shape,
        state.slots.shape[2],
        state.cross[0].shape[1],
        state.slots.stride(0),
        state.slots.data_ptr(),
        visible,
        lengths,
        ctypes.addressof(cross),
        None if state.cross_mask is None else state.cross_mask.data_ptr(),
        turns,
    )
    return described, cross
