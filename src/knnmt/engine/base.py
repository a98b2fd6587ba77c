"""What decoding and the datastore need from a frozen model, whatever its implementation.

A batch has `sentences`; each sentence has `width` rows (its beams). A step takes `m >= 1` new tokens per row and
returns the decoder's output representation of each: the input of the output projection, which is also the datastore's
key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from knnmt.config import DecodingConfig
from knnmt.engine.language_codes import Languages
from knnmt.engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # what only looks at stores and checkpoints need not wait for PyTorch
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class EncodedSources:
    """Encoder output of a batch.

    states: (sentences, source, dim); padded positions hold no meaning
    lengths: real tokens of each sentence, known to the host
    """

    states: Tensor
    lengths: tuple[int, ...]


class DecoderState(Protocol):
    """The decoder's memory of a batch. `step` extends it; the methods here are all the ways a search changes it."""

    @property
    def sentences(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def lengths(self) -> Tensor:
        """(sentences, width): tokens that each row has consumed."""

    def widen(self, width: int) -> None:
        """Give every sentence `width` rows, each continuing from its single row."""

    def reorder(self, parents: Tensor) -> None:
        """parents (sentences, width): row w of a sentence goes on from its row parents[:, w]."""

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i goes on as sentences[i] was; those not named leave the batch."""

    def cut_back(self, lengths: Tensor) -> None:
        """lengths (sentences, width): forget each row's tokens after the first `lengths`."""

    def compact(self) -> None:
        """Give back room that no row can see any more. Changes no result; may wait for the device."""


State = TypeVar("State", bound=DecoderState)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 of a checkpoint's config and weights, and of its tokenizer: a datastore belongs to exactly these."""

    model: str
    tokenizer: str


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids that decoding needs to know.

    target_code: the language code that comes first in every target. It is told, not predicted: texts that are encoded
        do not have it, forced passes put it in, and a search is forced to begin with it.
    """

    end: int
    padding: int
    decoder_start: int
    target_code: int | None = None

    @property
    def beginning(self) -> tuple[int, ...]:
        """What a decoder is fed before the first token of a text."""
        return (self.decoder_start,) if self.target_code is None else (self.decoder_start, self.target_code)


class Engine(Protocol[State]):
    """A frozen sequence-to-sequence model, ready to run on its device."""

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int:
        """Width of the representations that `step` returns."""

    @property
    def vocabulary_size(self) -> int:
        """Number of target tokens."""

    @property
    def max_positions(self) -> int:
        """Longest source or target, in tokens."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """What representations are in."""

    @property
    def computes_in(self) -> str:
        """The name of the type that products are computed in: that of `dtype`, or "int8"."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def languages(self) -> Languages:
        """What it translates from and to, as far as that is known."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def special_tokens(self) -> SpecialTokens: ...

    @property
    def generation(self) -> DecodingConfig:
        """The search settings that the checkpoint asks for."""

    def for_languages(self, source: str | None, target: str | None) -> Self:
        """The same model told other languages, by tags or its own codes. It shares the weights, and costs nothing.

        SettingError for languages that it does not translate between.
        """

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Run the encoder over token ids, each sentence ending in its end token."""

    def start(self, encoded: EncodedSources) -> State:
        """A decoder state of width 1 that has consumed nothing."""

    def step(self, state: State, tokens: Tensor, cross_attention: list[Tensor] | None = None) -> Tensor:
        """tokens (sentences, width, m) -> representations (sentences, width, m, dim), without host synchronisation.

        A list given as `cross_attention` receives that of the last layer, averaged over heads:
        (sentences, width, m, source).
        """

    def log_probabilities(self, representations: Tensor) -> Tensor:
        """(..., dim) -> (..., vocabulary), float32."""
