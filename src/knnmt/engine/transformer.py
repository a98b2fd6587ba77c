"""The encoder-decoder transformer, for inference, with the switches of `Architecture`.

It is fast because it uses few and large operations (`blocks`), computes the keys and values of the source once per
sentence, and never copies the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from knnmt import timing
from knnmt.engine.any_shape import any_shape
from knnmt.engine.architecture import Architecture
from knnmt.engine.base import EncodedSources, Fingerprint
from knnmt.engine.blocks import TIED, DecoderLayer, Embedding, EncoderLayer
from knnmt.engine.compiled_decoder import MAX_TOGETHER, CompiledDecoder
from knnmt.engine.compiled_encoder import CompiledEncoder
from knnmt.engine.fixed_state import FixedMemory, FixedState, Shared
from knnmt.engine.languages import ConfigureLanguages, LanguageSetup
from knnmt.engine.product import CompiledProduct
from knnmt.engine.rows import Rows
from knnmt.engine.sending import sent
from knnmt.engine.state import TransformerState
from knnmt.engine.weights import Weights
from knnmt.errors import CheckpointError


class TransformerEngine:
    """A frozen checkpoint behind the `knnmt.engine.base.Engine` protocol."""

    def __init__(
        self,
        name: str,
        shape: Architecture,
        weights: Weights,
        setup: LanguageSetup,
        configure: ConfigureLanguages,
        fingerprint: Callable[[], Fingerprint],
    ) -> None:
        self.name = name
        self._read_fingerprint = fingerprint
        self._shape = shape
        self._configure = configure
        self._use(setup)
        self.dim = shape.dim
        self._source_embedding = Embedding.of(weights, "encoder", shape)
        self._target_embedding = Embedding.of(weights, "decoder", shape)
        self._encoder = [
            EncoderLayer.of(weights, f"model.encoder.layers.{i}", shape) for i in range(shape.encoder_layers)
        ]
        self._decoder = [
            DecoderLayer.of(weights, f"model.decoder.layers.{i}", shape) for i in range(shape.decoder_layers)
        ]
        self._encoder_norm, self._decoder_norm = (
            weights.norm(f"model.{side}.layer_norm", shape.dim, shape.norm_epsilon) if shape.final_norm else None
            for side in ("encoder", "decoder")
        )
        output = weights.take(*shape.output, *(TIED if shape.tied else ()), shape=(None, shape.dim))
        self._output = weights.as_projection(output, self._output_bias(weights, len(output)), of_steps=True)
        self._compiled = CompiledDecoder.of(shape, self._target_embedding, self._decoder, self._decoder_norm)
        self._compiled_encoder = CompiledEncoder.of(
            shape, self._source_embedding, self._encoder, self._encoder_norm, self._decoder
        )
        self.vocabulary_size = output.shape[0]
        self.device = output.device
        self.dtype = output.dtype
        self.computes_in = str(weights.dtype).removeprefix("torch.")
        self._shared: dict[type, object] = {}
        self._require_fit()
        setup.require_tokens(name, self.vocabulary_size)

    def _use(self, setup: LanguageSetup) -> None:
        self.languages = setup.languages
        self.tokenizer = setup.tokenizer
        self.special_tokens = setup.special_tokens
        self.generation = setup.generation
        self.max_positions = setup.text_positions(self._shape.max_positions)

    def for_languages(self, source: str | None, target: str | None) -> Self:
        """The same weights, set to other languages."""
        setup = self._configure(source, target)
        setup.require_tokens(self.name, self.vocabulary_size)
        other = copy(self)
        other._use(setup)
        return other

    def get_or_make(self, kind: type[Shared]) -> Shared:
        """The one object of this class that belongs to the weights. The first call makes it."""
        found = self._shared.setdefault(kind, kind())
        assert isinstance(found, kind)  # noqa: S101 - objects are stored under their class
        return found

    def _require_fit(self) -> None:
        """Refuse a config that does not fit the weights now, before it fails in the middle of a text."""
        shape, padding = self._shape, self.special_tokens.padding
        tables = (self._source_embedding, self._target_embedding)
        for name, fits in (
            ("encoder_attention_heads", shape.dim % shape.encoder_heads == 0),
            ("decoder_attention_heads", shape.dim % shape.decoder_heads == 0),
            ("max_position_embeddings", min(len(table.positions) for table in tables) >= shape.max_positions),
            ("pad_token_id", 0 <= padding < min(len(table.tokens) for table in tables)),
            ("vocab_size", len(self._target_embedding.tokens) >= self.vocabulary_size),
        ):
            if not fits:
                raise CheckpointError(
                    f"{self.name}: {name} of config.json does not fit weights of {self.vocabulary_size:,} tokens and "
                    f"{shape.dim} dimensions. Check that config.json and the weights are from the same checkpoint."
                )

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Computed at the first call: translation without a datastore never needs it."""
        return self._read_fingerprint()

    @staticmethod
    def _output_bias(weights: Weights, tokens: int) -> Tensor | None:
        if "final_logits_bias" not in weights:
            return None
        bias = weights.take("final_logits_bias", shape=(1, tokens)).flatten()
        return bias if bool(bias.any()) else None

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        with timing.stage("encoder"), torch.inference_mode(), any_shape(self.device):
            rows = Rows.of(sources)
            lengths = tuple(rows.lengths.tolist())
            if self._compiled_encoder is not None:
                self._require_source_tokens(rows)
                return EncodedSources(self._compiled_encoder.states(rows), lengths)
            return EncodedSources(self.encode_padded(self._padded(rows), self._padding_mask(lengths)), lengths)

    def encode_padded(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """tokens (sentences, source) -> states (sentences, source, dim), without host synchronisation.

        mask (sentences, 1, 1, source): -inf for padding, else 0; None without padding
        """
        sentences, longest = tokens.shape
        positions = torch.arange(longest, device=self.device).expand(sentences, -1)
        x = self._source_embedding(tokens, positions).view(-1, self.dim)
        for layer in self._encoder:
            x = layer(x, sentences, mask)
        if self._encoder_norm is not None:
            x = self._encoder_norm(x)
        return x.view(sentences, longest, self.dim)

    def start(self, encoded: EncodedSources) -> TransformerState:
        with timing.stage("encoder"), torch.inference_mode():
            cross, mask = self._source_attention_of(encoded), self._padding_mask(encoded.lengths)
            return TransformerState(cross, mask, encoded.lengths, self._layer_heads)

    def _source_attention_of(self, encoded: EncodedSources) -> list[Tensor]:
        if self._compiled_encoder is None:
            return self.source_attention(encoded.states)
        return self._compiled_encoder.source_attention(encoded.states, encoded.lengths, self._shape.decoder_heads)

    def source_attention(self, states: Tensor) -> list[Tensor]:
        """Each layer's keys and values of the source, (sentences, source, 2, heads, head_dim), from encoder states."""
        sentences, longest, dim = states.shape
        _, heads, head_dim = self._layer_heads
        x = states.view(-1, dim)
        return [layer.cross_key_value(x).view(sentences, longest, 2, heads, head_dim) for layer in self._decoder]

    def fixed_memory(self, sentences: int, width: int, capacity: int, source: int) -> FixedMemory:
        """Memory for decoder states whose steps can be captured."""
        return FixedMemory(self._layer_heads, sentences, width, capacity, source, self._target_embedding.tokens)

    @property
    def _layer_heads(self) -> tuple[int, int, int]:
        heads = self._shape.decoder_heads
        return len(self._decoder), heads, self.dim // heads

    def step(
        self,
        state: TransformerState | FixedState,
        tokens: Tensor,
        cross_attention: list[Tensor] | None = None,
    ) -> Tensor:
        # Captured steps keep their shapes: if our own kernel cannot serve one, cuDNN is a little faster.
        attention = any_shape(self.device) if isinstance(state, TransformerState) else nullcontext()
        with timing.stage("decoder"), torch.inference_mode(), attention:
            sentences, width, m = tokens.shape
            compiled = self._compiled if m <= MAX_TOGETHER and cross_attention is None else None
            if compiled is not None and isinstance(state, TransformerState):
                return compiled.step(state, tokens)
            if cross_attention is not None:
                cross_attention.clear()
            new = state.admit(m)
            x = self._target_embedding(tokens, new.positions).view(-1, self.dim)
            for layer, slots, cross in zip(self._decoder, state.slots, state.cross, strict=True):
                wanted = cross_attention if layer is self._decoder[-1] else None
                x = layer(x, slots[:, : new.mask.shape[-1]], new, cross, state.cross_mask, wanted)
            if self._decoder_norm is not None:
                x = self._decoder_norm(x)
            if cross_attention is not None:
                cross_attention[:] = [weights.view(sentences, width, m, -1) for weights in cross_attention]
            return x.view(sentences, width, m, self.dim)

    @property
    def compiled(self) -> tuple[CompiledDecoder, CompiledProduct] | None:
        """The decoder and the output projection in compiled code, or None if one of them is not compiled."""
        decoder, output = self._compiled, self._output.compiled
        return None if decoder is None or output is None else (decoder, output)

    def scores(self, representations: Tensor) -> Tensor:
        """(..., dim) -> (..., vocabulary), before the softmax, in the type of the weights."""
        with timing.stage("output"), torch.inference_mode():
            return self._output(representations.reshape(-1, self.dim)).view(*representations.shape[:-1], -1)

    def log_probabilities(self, representations: Tensor) -> Tensor:
        with timing.stage("output"), torch.inference_mode():
            rows = representations.reshape(-1, self.dim)
            if self._output.compiled is not None:
                found = self._output.compiled.log_probabilities(rows)
            else:
                found = torch.log_softmax(self._output(rows), dim=-1, dtype=torch.float32)
            return found.view(*representations.shape[:-1], -1)

    def _padded(self, sources: Rows) -> Tensor:
        self._require_source_tokens(sources)
        return sent(torch.from_numpy(sources.padded(self.special_tokens.padding)), self.device)

    def _require_source_tokens(self, sources: Rows) -> None:
        most = int(sources.numbers.max(initial=0))
        if most >= len(self._source_embedding.tokens):
            raise CheckpointError(
                f"{self.name}: its tokenizer gives token {most}, but its weights have only "
                f"{len(self._source_embedding.tokens):,} tokens. Check that both are from the same checkpoint."
            )

    def _padding_mask(self, lengths: Sequence[int]) -> Tensor | None:
        """(sentences, 1, 1, longest), or None if all sentences have the same length."""
        longest = max(lengths)
        if min(lengths) == longest:
            return None
        padded = torch.arange(longest, device=self.device) >= sent(torch.tensor(lengths), self.device)[:, None]
        zeros = torch.zeros(padded.shape, device=self.device, dtype=self.dtype)
        return zeros.masked_fill_(padded, float("-inf"))[:, None, None]
