"""Settings of a run, as frozen dataclasses that check themselves and can sign a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from knnmt.errors import SettingError


def check(condition: bool, message: str) -> None:
    """Raise `SettingError(message)` unless `condition` holds."""
    if not condition:
        raise SettingError(message)


@dataclass(frozen=True, slots=True)
class DecodingConfig:
    """How hypotheses are searched. A checkpoint's generation settings give the values that a call leaves open.

    A hypothesis counts its generated tokens, end of sentence included, the decoder's start token not.
    """

    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    max_tokens: int = 511
    min_tokens: int = 0
    forced_first_token: int | None = None
    forced_last_token: int | None = None
    suppressed_tokens: tuple[int, ...] = ()
    suppressed_sequences: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        check(self.beam >= 1, f"beam must be at least 1, got {self.beam}")
        check(
            1 <= self.n_best <= self.beam,
            f"n_best must lie between 1 and the beam size {self.beam}, got {self.n_best}; use a larger beam",
        )
        check(
            abs(self.length_penalty) <= 100,  # false for nan, too
            f"length_penalty must lie between -100 and 100, got {self.length_penalty}",
        )
        check(self.max_tokens >= 1, f"max_tokens must be at least 1, got {self.max_tokens}")
        check(
            self.early_stopping in (True, False, "never"),
            f"early_stopping must be True, False or 'never', got {self.early_stopping!r}",
        )

    def signature(self) -> str:
        """What a published score must say of the search."""
        if self.beam == 1:
            return f"beam:1|max:{self.max_tokens}"
        stopping = {True: "yes", False: "no", "never": "never"}[self.early_stopping]
        return f"beam:{self.beam}|lp:{self.length_penalty:g}|early:{stopping}|max:{self.max_tokens}"


@dataclass(frozen=True, slots=True)
class BatchingConfig:
    """How segments are grouped: at most `sentences` in a batch, and at most `tokens` source tokens, padding counted.

    Segments are sorted by length within a window of `window` segments, which bounds memory on endless input.
    """

    sentences: int | None = 32
    tokens: int | None = None
    window: int = 512

    def __post_init__(self) -> None:
        check(
            self.sentences is not None or self.tokens is not None,
            "a batch needs a limit: give batch_size (sentences), batch_tokens, or both",
        )
        check(self.sentences is None or self.sentences >= 1, f"batch_size must be at least 1, got {self.sentences}")
        check(self.tokens is None or self.tokens >= 1, f"batch_tokens must be at least 1, got {self.tokens}")
        check(self.window >= 1, f"window must be at least 1, got {self.window}")
