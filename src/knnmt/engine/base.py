"""The interface that decoding and the datastore need from a frozen model.

A batch has `sentences`; each sentence has `width` rows (its beams). A step takes `m >= 1` new tokens per row and
returns the decoder's output representation of each token. This is the input of the output projection, and also the key
of the datastore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from knnmt.config import DecodingConfig
from knnmt.engine.language_codes import Languages
from knnmt.engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # code that only inspects stores and checkpoints need not import PyTorch
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class EncodedSources:
    """Encoder output of a batch.

    states: (sentences, source, dim); padding has no meaning
    lengths: number of tokens of each sentence without padding, known to the host
    """

    states: Tensor
    lengths: tuple[int, ...]


class DecoderState(Protocol):
    """The decoder's memory of a batch. `step` extends it; the methods here are all the ways a search changes it."""

    @property
    def sentences(self) -> int: ...

    @property
    def width(self) -> int: ...

    def widen(self, width: int) -> None:
        """Give every sentence `width` rows, each a continuation of its single row."""

    def reorder(self, parents: Tensor) -> None:
        """parents (sentences, width): the new row w of a sentence continues its old row parents[:, w]."""

    def keep(self, sentences: Sequence[int]) -> None:
        """The new sentence i is the old sentences[i]; all others leave the batch."""

    def compact(self) -> None:
        """Free the memory that no row can see any more. This changes no result; it may wait for the device."""


State = TypeVar("State", bound=DecoderState)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 of a checkpoint's config and weights, and of its tokenizer: a datastore belongs to exactly these."""

    model: str
    tokenizer: str


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids that decoding needs to know.

    target_code: the language code that comes first in every target. It is given, not predicted: encoded texts do not
        contain it, forced passes insert it, and a search must begin with it.
    """

    end: int
    padding: int
    decoder_start: int
    target_code: int | None = None

    @property
    def beginning(self) -> tuple[int, ...]:
        """The tokens that a decoder receives before the first token of a text."""
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
        """The largest length of a source or target, in tokens."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of the representations."""

    @property
    def computes_in(self) -> str:
        """The name of the type in which products are computed: that of `dtype`, or "int8"."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def languages(self) -> Languages:
        """The languages that it translates between, as far as they are known."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def special_tokens(self) -> SpecialTokens: ...

    @property
    def generation(self) -> DecodingConfig:
        """The search settings that the checkpoint asks for."""

    def for_languages(self, source: str | None, target: str | None) -> Self:
        """The same model set to other languages, by tags or by its own codes. It shares the weights and costs nothing.

        SettingError for languages that the model does not translate between.
        """

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Run the encoder over token ids. Each sentence ends in the end token."""

    def start(self, encoded: EncodedSources) -> State:
        """A decoder state of width 1 that has consumed nothing."""

    def step(self, state: State, tokens: Tensor, cross_attention: list[Tensor] | None = None) -> Tensor:
        """tokens (sentences, width, m) -> representations (sentences, width, m, dim), without host synchronisation.

        A list given as `cross_attention` receives the attention of the last layer to the source, averaged over heads:
        (sentences, width, m, source).
        """

    def log_probabilities(self, representations: Tensor) -> Tensor:
        """(..., dim) -> (..., vocabulary), float32."""
