"""Hooks on a model of `transformers` for what `generate` does not give to logits processors: states and raw logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from knnmt.errors import SettingError
from knnmt.huggingface.model import output_projection

_WHAT_WORKS = (
    "Greedy search, beam search and sampling from input_ids work; assisted and prompt-lookup decoding, guidance, "
    "chunked prefill, compiled models and encoder_outputs made beforehand do not."
)


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """The model's output for one step of `generate`.

    first: whether a new call of `generate` begins
    sentences: the number of sources; each has rows // sentences consecutive rows
    states: (rows, dim), the input of the output projection
    logits: (rows, vocabulary) float32, before all processors
    """

    first: bool
    sentences: int
    states: Tensor
    logits: Tensor


class ModelWatch:
    """Remembers the newest pass of a model until it is taken.

    Passes with gradients are ignored: `generate` makes none, and training should not be held in memory.
    """

    def __init__(self, model: Any) -> None:
        self._sentences = 0
        self._length: int | None = None
        self._states: list[Tensor] = []
        self._logits: list[Tensor] = []
        self._handles = [
            model.get_encoder().register_forward_hook(self._see_sources),
            output_projection(model).register_forward_pre_hook(self._see_states),
            model.register_forward_hook(self._see_logits),
        ]

    def remove(self) -> None:
        """Remove the hooks from the model. May be called again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def take(self, input_ids: Tensor) -> WatchedStep:
        """The step that computed these rows, (rows, length). It can be taken once."""
        rows, length = input_ids.shape
        states, logits = self._states, self._logits
        self._states, self._logits = [], []
        if not self._handles:
            raise SettingError("this KNNLogitsProcessor was removed from its model; make a new one")
        first = self._length is None
        goes_on = first or self._length == length - 1
        if not goes_on or not self._sentences or rows % self._sentences:
            raise SettingError(f"a generation started without the model's encoder. {_WHAT_WORKS}")
        if not len(states) == len(logits) == 1 or len(states[0]) != rows:
            raise SettingError(
                f"expected one pass of the model for each step, with {rows} rows; saw {len(logits)} "
                f"(rows: {', '.join(str(len(each)) for each in logits) or 'none'}). {_WHAT_WORKS}"
            )
        self._length = length
        return WatchedStep(first, self._sentences, states[0], logits[0].float())

    def _see_sources(self, _module: Any, _inputs: Any, output: Any) -> None:
        if not torch.is_grad_enabled():
            self._sentences = len(output[0])
            self._length = None
            self._states, self._logits = [], []

    def _see_states(self, _module: Any, inputs: tuple[Tensor, ...]) -> None:
        if not torch.is_grad_enabled():
            self._states.append(inputs[0][:, -1])

    def _see_logits(self, _module: Any, _inputs: Any, output: Any) -> None:
        if not torch.is_grad_enabled() and hasattr(output, "logits"):
            self._logits.append(output.logits[:, -1])
