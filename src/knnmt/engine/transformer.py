"""The encoder-decoder transformer, for inference, with the switches of `Architecture`.

Speed comes from few and large operations: queries, keys and values of self-attention in one product, the beams of a
sentence attending together, keys and values of the source computed once a sentence, no copy of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from knnmt import timing
from knnmt.engine.architecture import Architecture
from knnmt.engine.base import EncodedSources, Fingerprint
from knnmt.engine.compiled_decoder import CompiledDecoder
from knnmt.engine.fixed_state import FixedMemory, FixedState
from knnmt.engine.languages import Told
from knnmt.engine.layers import ACTIVATIONS, AnyProjection, FeedForward, Norm, Residual, attend, attention_weights
from knnmt.engine.state import Admitted, TransformerState
from knnmt.engine.weights import Weights
from knnmt.errors import CheckpointError


def sinusoidal_positions(count: int, dim: int) -> Tensor:
    """(count, dim): sines in the first half of the features, cosines in the second, as Marian lays them out."""
    half = (dim + 1) // 2
    place = torch.arange(count, dtype=torch.float64)[:, None]
    sine = torch.sin(place / 10000 ** (2 * torch.arange(half, dtype=torch.float64) / dim))
    cosine = torch.cos(place / 10000 ** (2 * torch.arange(dim - half, dtype=torch.float64) / dim))
    return torch.cat([sine, cosine], dim=1).float()


def fairseq_positions(count: int, dim: int) -> Tensor:
    """(count, dim): fairseq's sinusoids, of which the slowest turns 10000 times slower than the fastest.

    In float32 from the start, as those models saw them: far positions would come out 1e-4 apart otherwise.
    """
    half = dim // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angle = torch.arange(count, dtype=torch.float32)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos(), torch.zeros(count, dim % 2)], dim=1)


# Names under which files hold a table that is tied; where only source and target are apart, the target's comes first.
# A table of one's own goes before them: what the file keeps apart is apart, whatever the config says of ties.
TIED = (
    "model.decoder.embed_tokens.weight",
    "model.shared.weight",
    "lm_head.weight",
    "model.decoder.output_projection.weight",
    "model.encoder.embed_tokens.weight",
)
_POSITION_TABLES = {"sinusoidal": sinusoidal_positions, "fairseq": fairseq_positions}


@dataclass(frozen=True, slots=True)
class Embedding:
    """Token and position embeddings, the tokens' scaled beforehand."""

    tokens: Tensor
    positions: Tensor
    norm: Norm | None

    @classmethod
    def of(cls, weights: Weights, side: str, shape: Architecture) -> Embedding:
        own = f"model.{side}.embed_tokens.weight"
        table = weights.take(own, *(TIED if shape.tied else ["model.shared.weight"]), shape=(None, shape.dim))
        stored = f"model.{side}.embed_positions.weight"
        if shape.positions == "learned" or stored in weights:
            positions = weights.take(stored, shape=(None, shape.dim))
        else:
            make = _POSITION_TABLES[shape.positions]
            positions = make(shape.max_positions + shape.position_offset, shape.dim).to(table)
        name = f"model.{side}.layernorm_embedding"
        norm = weights.norm(name, shape.dim, shape.norm_epsilon) if shape.embedding_norm else None
        return cls(table * shape.embedding_scale, positions[shape.position_offset :], norm)

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = functional.embedding(tokens, self.tokens) + functional.embedding(positions, self.positions)
        return x if self.norm is None else self.norm(x)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Self-attention and feed-forward."""

    heads: int
    attention_in: AnyProjection
    attention_out: AnyProjection
    attention_residual: Residual
    feed_forward: FeedForward
    feed_forward_residual: Residual

    @classmethod
    def of(cls, weights: Weights, name: str, shape: Architecture) -> EncoderLayer:
        return cls(
            heads=shape.encoder_heads,
            attention_in=_square(weights, shape, *(f"{name}.self_attn.{part}_proj" for part in "qkv")),
            attention_out=_square(weights, shape, f"{name}.self_attn.out_proj"),
            attention_residual=_residual(weights, f"{name}.self_attn_layer_norm", shape),
            feed_forward=_feed_forward(weights, name, shape),
            feed_forward_residual=_residual(weights, f"{name}.final_layer_norm", shape),
        )

    def __call__(self, x: Tensor, sentences: int, mask: Tensor | None) -> Tensor:
        def attention(x: Tensor) -> Tensor:
            query, key, value = (
                self.attention_in(x).view(sentences, -1, 3, self.heads, x.shape[1] // self.heads).unbind(2)
            )
            return self.attention_out(attend(query, key, value, mask))

        return self.feed_forward_residual(self.attention_residual(x, attention), self.feed_forward)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Self-attention over the cache, attention to the source, feed-forward."""

    heads: int
    self_in: AnyProjection
    self_out: AnyProjection
    self_residual: Residual
    cross_query: AnyProjection
    cross_key_value: AnyProjection
    cross_out: AnyProjection
    cross_residual: Residual
    feed_forward: FeedForward
    feed_forward_residual: Residual

    @classmethod
    def of(cls, weights: Weights, name: str, shape: Architecture) -> DecoderLayer:
        """In int8 with two digits a number: what comes out is compared with keys, which are in float32."""
        return cls(
            heads=shape.decoder_heads,
            self_in=_square(weights, shape, *(f"{name}.self_attn.{part}_proj" for part in "qkv"), fine=True),
            self_out=_square(weights, shape, f"{name}.self_attn.out_proj", fine=True),
            self_residual=_residual(weights, f"{name}.self_attn_layer_norm", shape),
            cross_query=_square(weights, shape, f"{name}.encoder_attn.q_proj", fine=True),
            cross_key_value=_square(weights, shape, *(f"{name}.encoder_attn.{part}_proj" for part in "kv")),
            cross_out=_square(weights, shape, f"{name}.encoder_attn.out_proj", fine=True),
            cross_residual=_residual(weights, f"{name}.encoder_attn_layer_norm", shape),
            feed_forward=_feed_forward(weights, name, shape, fine=True),
            feed_forward_residual=_residual(weights, f"{name}.final_layer_norm", shape),
        )

    def __call__(
        self,
        x: Tensor,
        slots: Tensor,
        new: Admitted,
        cross: Tensor,
        cross_mask: Tensor | None,
        cross_attention: list[Tensor] | None,
    ) -> Tensor:
        """x (sentences * new tokens, dim); slots (sentences, seen, 2, heads, head_dim), those of `new` to be filled."""
        shape = (slots.shape[0], new.mask.shape[2], -1, self.heads, slots.shape[-1])

        def self_attention(x: Tensor) -> Tensor:
            query_key_value = self.self_in(x).view(shape)
            slots[:, new.places] = query_key_value[:, :, 1:]
            return self.self_out(attend(query_key_value[:, :, 0], slots[:, :, 0], slots[:, :, 1], new.mask))

        def source_attention(x: Tensor) -> Tensor:
            query = self.cross_query(x).view(shape)[:, :, 0]
            if cross_attention is not None:
                cross_attention.append(attention_weights(query, cross[:, :, 0], cross_mask))
            return self.cross_out(attend(query, cross[:, :, 0], cross[:, :, 1], cross_mask))

        x = self.self_residual(x, self_attention)
        x = self.cross_residual(x, source_attention)
        return self.feed_forward_residual(x, self.feed_forward)


def _square(weights: Weights, shape: Architecture, *names: str, fine: bool = False) -> AnyProjection:
    """Projections from the model's dimension to itself."""
    return weights.projection(*names, inputs=shape.dim, outputs=shape.dim, fine=fine)


def _residual(weights: Weights, name: str, shape: Architecture) -> Residual:
    return Residual(weights.norm(name, shape.dim, shape.norm_epsilon), shape.norm_first)


def _feed_forward(weights: Weights, name: str, shape: Architecture, fine: bool = False) -> FeedForward:
    hidden = weights.rows_of(f"{name}.fc1.weight")
    return FeedForward(
        weights.projection(f"{name}.fc1", inputs=shape.dim, outputs=hidden, fine=fine),
        weights.projection(f"{name}.fc2", inputs=hidden, outputs=shape.dim, fine=True),
        ACTIVATIONS[shape.activation],
    )


class TransformerEngine:
    """A frozen checkpoint behind the `knnmt.engine.base.Engine` protocol."""

    def __init__(
        self,
        name: str,
        shape: Architecture,
        weights: Weights,
        told: Told,
        fingerprint: Callable[[], Fingerprint],
    ) -> None:
        self.name = name
        self._read_fingerprint = fingerprint
        self.languages = told.languages
        self.tokenizer = told.tokenizer
        self.special_tokens = told.special_tokens
        self.generation = told.generation
        self.max_positions = told.room(shape.max_positions)
        self.dim = shape.dim
        self._shape = shape
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
        self._output = weights.as_projection(output, self._output_bias(weights, len(output)))
        self._compiled = CompiledDecoder.of(shape, self._target_embedding, self._decoder, self._decoder_norm)
        self.vocabulary_size = output.shape[0]
        self.device = output.device
        self.dtype = output.dtype
        self.computes_in = str(weights.dtype).removeprefix("torch.")
        self.arenas: list[Any] = []  # what decoding keeps with the engine on a GPU; see knnmt.decoding.arena
        self._require_fit()
        told.require_tokens(name, self.vocabulary_size)

    def _require_fit(self) -> None:
        """Refuse a config that is not of these weights before it fails in the middle of a text."""
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
        """Read when first asked for: translating without a datastore never needs it."""
        return self._read_fingerprint()

    @staticmethod
    def _output_bias(weights: Weights, tokens: int) -> Tensor | None:
        if "final_logits_bias" not in weights:
            return None
        bias = weights.take("final_logits_bias", shape=(1, tokens)).flatten()
        return bias if bool(bias.any()) else None

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        with timing.stage("encoder"), torch.inference_mode():
            lengths = tuple(len(source) for source in sources)
            return EncodedSources(self.encode_padded(self._padded(sources), self._padding_mask(lengths)), lengths)

    def encode_padded(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """tokens (sentences, source) -> states (sentences, source, dim), without host synchronisation.

        mask (sentences, 1, 1, source): -inf where a token is padding, else 0; None where none is
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
            return TransformerState(
                self.source_attention(encoded.states), self._padding_mask(encoded.lengths), self._layer_heads
            )

    def source_attention(self, states: Tensor) -> list[Tensor]:
        """Each layer's keys and values of the source, (sentences, source, 2, heads, head_dim), from encoder states."""
        sentences, longest, dim = states.shape
        _, heads, head_dim = self._layer_heads
        x = states.view(-1, dim)
        return [layer.cross_key_value(x).view(sentences, longest, 2, heads, head_dim) for layer in self._decoder]

    def fixed_memory(self, sentences: int, width: int, capacity: int, source: int) -> FixedMemory:
        """Room for decoder states whose steps can be recorded."""
        return FixedMemory(self._layer_heads, sentences, width, capacity, source, self._target_embedding.tokens)

    @property
    def _layer_heads(self) -> tuple[int, int, int]:
        heads = self._shape.decoder_heads
        return len(self._decoder), heads, self.dim // heads

    def step(
        self, state: TransformerState | FixedState, tokens: Tensor, cross_attention: list[Tensor] | None = None
    ) -> Tensor:
        with timing.stage("decoder"), torch.inference_mode():
            sentences, width, m = tokens.shape
            compiled = self._compiled if m == 1 and cross_attention is None else None
            if compiled is not None and isinstance(state, TransformerState):
                return compiled.step(state, tokens[..., 0])[:, :, None]
            if cross_attention is not None:
                cross_attention.clear()
            new = state.admit(m)
            x = self._target_embedding(tokens, new.positions).view(-1, self.dim)
            for layer, slots, cross in zip(self._decoder, state.slots, state.cross, strict=True):
                x = layer(x, slots[:, : new.mask.shape[-1]], new, cross, state.cross_mask, cross_attention)
            if self._decoder_norm is not None:
                x = self._decoder_norm(x)
            if cross_attention is not None:
                cross_attention[:] = [weights.view(sentences, width, m, -1) for weights in cross_attention]
            return x.view(sentences, width, m, self.dim)

    def log_probabilities(self, representations: Tensor) -> Tensor:
        with timing.stage("output"), torch.inference_mode():
            rows = representations.reshape(-1, self.dim)
            if self._output.compiled is not None:
                found = self._output.compiled.log_probabilities(rows)
            else:
                found = torch.log_softmax(self._output(rows), dim=-1, dtype=torch.float32)
            return found.view(*representations.shape[:-1], -1)

    def _padded(self, sources: Sequence[Sequence[int]]) -> Tensor:
        longest = max(len(source) for source in sources)
        padding = self.special_tokens.padding
        rows = [[*source, *[padding] * (longest - len(source))] for source in sources]
        tokens = torch.tensor(rows)
        if longest and int(tokens.max()) >= len(self._source_embedding.tokens):
            raise CheckpointError(
                f"{self.name}: its tokenizer gives token {int(tokens.max())}, and its weights have "
                f"{len(self._source_embedding.tokens):,}. Check that both are from the same checkpoint."
            )
        return tokens.to(self.device)

    def _padding_mask(self, lengths: Sequence[int]) -> Tensor | None:
        """(sentences, 1, 1, longest), or None where every sentence is as long as the longest."""
        longest = max(lengths)
        if min(lengths) == longest:
            return None
        padded = torch.arange(longest, device=self.device) >= torch.tensor(lengths, device=self.device)[:, None]
        zeros = torch.zeros(padded.shape, device=self.device, dtype=self.dtype)
        return zeros.masked_fill_(padded, float("-inf"))[:, None, None]
