"""Tokens that a checkpoint's settings force or forbid, applied to log-probabilities in place.

As in `transformers`, log-probabilities are not normalised again afterwards.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from knnmt.config import DecodingConfig

_NEVER = float("-inf")


class Constraints:
    """The forced and forbidden tokens of one search."""

    def __init__(self, config: DecodingConfig, end: int, device: torch.device) -> None:
        self._config = config
        self._end = end
        self._device = device
        self._sequences = [
            (torch.tensor(sequence[:-1], device=device), sequence[-1]) for sequence in config.suppressed_sequences
        ]

    @cached_property
    def _suppressed(self) -> Tensor:
        return torch.tensor(self._config.suppressed_tokens, dtype=torch.long, device=self._device)

    @cached_property
    def _suppressed_and_end(self) -> Tensor:
        return torch.tensor((self._end, *self._config.suppressed_tokens), dtype=torch.long, device=self._device)

    def forbidden(self, generated: int) -> Tensor:
        """The tokens that are forbidden after so many tokens, except by sequences. The tensor is always the same."""
        return self._suppressed_and_end if self.at(generated)[1] else self._suppressed

    @property
    def sequences(self) -> bool:
        """Whether sequences are forbidden, which needs the history."""
        return bool(self._sequences)

    def forces(self, generated: int) -> bool:
        """Whether the token after `generated` ones is forced."""
        return self.at(generated)[0] is not None

    def at(self, generated: int) -> tuple[int | None, bool, tuple[int, ...]]:
        """Everything that is forced and forbidden after so many tokens, except sequences.

        Steps with equal values are alike.
        """
        config = self._config
        token = config.forced_first_token if generated == 0 else None
        if generated == config.max_tokens - 1 and config.forced_last_token is not None:
            token = config.forced_last_token
        return token, generated < config.min_tokens, config.suppressed_tokens

    def steady(self, generated: int) -> tuple[tuple[int, ...], int]:
        """The tokens that are forbidden after so many tokens, and for how many steps from there exactly these are.

        No step if a token is forced or sequences are forbidden.
        """
        token, begins, suppressed = self.at(generated)
        if token is not None or self._sequences:
            return (), 0
        config = self._config
        until = config.max_tokens - (config.forced_last_token is not None)
        if begins:
            return (self._end, *suppressed), min(until, config.min_tokens) - generated
        return suppressed, until - generated

    def apply(self, log_probabilities: Tensor, generated: int, history: Tensor | None) -> None:
        """Force and forbid tokens, in place.

        log_probabilities (sentences, width, vocabulary); history (sentences, width, generated so far), which is only
        needed for suppressed sequences
        """
        config = self._config
        for beginning, last in self._sequences:
            if history is not None and len(beginning) <= generated:
                reached = (history[..., generated - len(beginning) :] == beginning).all(-1)
                log_probabilities[..., last].masked_fill_(reached, _NEVER)
        if generated < config.min_tokens:
            log_probabilities[..., self._end] = _NEVER
        if config.suppressed_tokens:
            log_probabilities.index_fill_(-1, self._suppressed, _NEVER)
        if (token := self.at(generated)[0]) is not None:
            log_probabilities.fill_(_NEVER)
            log_probabilities[..., token] = 0.0
