"""Several steps of a search with the model alone in one compiled call, as in `native/ahead.cpp`.

A step of a small model takes about a millisecond. Between two steps, Python runs code that reading the weights has
driven out of the caches, which would take a fifth of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from knnmt import timing
from knnmt.engine.compiled_decoder import CompiledDecoder
from knnmt.engine.product import CompiledProduct
from knnmt.engine.state import StateInTurn, TransformerState


class _Ahead(ctypes.Structure):
    """As in ahead.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("count", "steps", "forbidden")),
        ("end", ctypes.c_int64),
        ("never", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("length", "longest")),
        *((name, ctypes.c_void_p) for name in ("tokens", "history", "scores", "best", "places")),
        *((name, ctypes.c_void_p) for name in ("representations", "log_probabilities", "scratch")),
        ("seconds", ctypes.c_double * 3),
    )


@dataclass(slots=True)
class Running:
    """The running hypotheses of a batch.

    tokens: (sentences, width), the newest token of each
    history: (sentences, width, length)
    scores: (sentences, width)
    """

    tokens: Tensor
    history: Tensor
    scores: Tensor


class CompiledAhead:
    """Steps of the decoder and the output projection, and the choice between continuations."""

    def __init__(self, decoder: CompiledDecoder, output: CompiledProduct) -> None:
        self._decoder, self._output = decoder, output

    def run(
        self, state: TransformerState, running: Running, count: int, steps: int, end: int, never: tuple[int, ...]
    ) -> tuple[Running, Tensor, Tensor, Tensor]:
        """Make up to `steps` steps, until one that a search must look at: a hypothesis ends, or nothing is possible.

        Returns the hypotheses before the last step, and the `count` best continuations of that step as
        `continuations.best_continuations` does. never: tokens that are forbidden
        """
        output = self._output
        self._require(never)
        sentences, width = running.tokens.shape
        rows, length = sentences * width, running.history.shape[-1]
        steps = state.room_for_steps(steps if count >= width else 1)
        history = torch.empty((sentences, width, length + steps), dtype=torch.long)
        history[:, :, :length] = running.history
        tokens, scores = (
            each.clone(memory_format=torch.contiguous_format) for each in (running.tokens, running.scores)
        )
        best, places = torch.empty((sentences, count)), torch.empty((sentences, count), dtype=torch.long)
        representations = torch.empty((rows, output.inputs))
        log_probabilities = torch.empty((rows, output.outputs))
        forbidden = (ctypes.c_int64 * len(never))(*never)
        written = (tokens, history, scores, best, places, representations, log_probabilities, output.scratch(rows))
        ahead = _Ahead(
            count,
            steps,
            len(never),
            end,
            ctypes.addressof(forbidden),
            length,
            length + steps,
            *(each.data_ptr() for each in written),
        )
        made = self._decoder.ahead(state, output.matrix, ahead)
        for stage, seconds in zip(
            ("decoder", "output", "greedy" if count == 1 else "beam"), ahead.seconds, strict=True
        ):
            timing.spent(stage, seconds, made)
        followed = Running(tokens, history[:, :, : length + made - 1], scores)
        return followed, best, places // output.outputs, places % output.outputs

    @property
    def vocabulary(self) -> int:
        return self._output.outputs

    def passes(self, state: StateInTurn, given: Sequence[int], never: tuple[int, ...]) -> int:
        """Passes of greedy search with drafts, as `CompiledDecoder.passes`. never: tokens that are forbidden"""
        self._require(never)
        return self._decoder.passes(state, self._output.matrix, given)

    def _require(self, never: tuple[int, ...]) -> None:
        """Refuse tokens that compiled code would look for beyond the vocabulary."""
        if never and not 0 <= min(never) <= max(never) < self.vocabulary:
            raise ValueError(f"expected tokens below {self.vocabulary} to forbid, got {never}")


@runtime_checkable
class EngineAhead(Protocol):
    """An engine that may make several steps in one call."""

    @property
    def ahead(self) -> CompiledAhead | None:
        """None if it cannot on this machine."""
