"""The blocks of a transformer, made from a checkpoint's weights: embeddings, encoder and decoder layers.

One product computes queries, keys and values of self-attention, and the beams of a sentence attend together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.engine import gpu_layers
from knnmt.engine.architecture import Architecture
from knnmt.engine.layers import ACTIVATIONS, AnyProjection, FeedForward, Norm, Residual, attend, attention_weights
from knnmt.engine.state import Admitted
from knnmt.engine.weights import Weights


def sinusoidal_positions(count: int, dim: int) -> Tensor:
    """(count, dim): sines in the first half of the features, cosines in the second, as Marian lays them out."""
    half = (dim + 1) // 2
    place = torch.arange(count, dtype=torch.float64)[:, None]
    sine = torch.sin(place / 10000 ** (2 * torch.arange(half, dtype=torch.float64) / dim))
    cosine = torch.cos(place / 10000 ** (2 * torch.arange(dim - half, dtype=torch.float64) / dim))
    return torch.cat([sine, cosine], dim=1).float()


def fairseq_positions(count: int, dim: int) -> Tensor:
    """(count, dim): fairseq's sinusoids, of which the slowest turns 10000 times slower than the fastest.

    They are computed in float32 from the start, as in training: otherwise far positions would differ by 1e-4.
    """
    half = dim // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angle = torch.arange(count, dtype=torch.float32)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos(), torch.zeros(count, dim % 2)], dim=1)


# Names of a tied table in the files. If source and target have separate tables, the target's name comes first.
# A separate table takes precedence: tables that the file keeps apart are not tied, whatever the config says.
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
    """Token and position embeddings. The token embeddings are scaled in advance."""

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
        """(tokens, dim), from tokens and positions that can be broadcast to their shape."""
        x = gpu_layers.embedded(tokens, positions, self.tokens, self.positions)
        if x is None:
            both = functional.embedding(tokens, self.tokens) + functional.embedding(positions, self.positions)
            x = both.view(-1, self.tokens.shape[1])
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
        """What every step reads is `of_steps`. In int8, its rows have two digits, for they are compared with keys."""
        return cls(
            heads=shape.decoder_heads,
            self_in=_square(weights, shape, *(f"{name}.self_attn.{part}_proj" for part in "qkv"), of_steps=True),
            self_out=_square(weights, shape, f"{name}.self_attn.out_proj", of_steps=True),
            self_residual=_residual(weights, f"{name}.self_attn_layer_norm", shape),
            cross_query=_square(weights, shape, f"{name}.encoder_attn.q_proj", of_steps=True),
            cross_key_value=_square(weights, shape, *(f"{name}.encoder_attn.{part}_proj" for part in "kv")),
            cross_out=_square(weights, shape, f"{name}.encoder_attn.out_proj", of_steps=True),
            cross_residual=_residual(weights, f"{name}.encoder_attn_layer_norm", shape),
            feed_forward=_feed_forward(weights, name, shape, of_steps=True),
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
        """x (sentences * new tokens, dim); slots (sentences, seen, 2, heads, head_dim): it fills those of `new`."""
        shape = (slots.shape[0], new.mask.shape[2], -1, self.heads, slots.shape[-1])

        def self_attention(x: Tensor) -> Tensor:
            projected = self.self_in(x)
            found = None if new.numbers is None else gpu_layers.attended(projected, slots, new.mask, new.numbers)
            if found is None:
                query_key_value = projected.view(shape)
                slots[new.places] = query_key_value[:, :, 1:]
                found = attend(query_key_value[:, :, 0], slots[:, :, 0], slots[:, :, 1], new.mask)
            return self.self_out(found)

        def source_attention(x: Tensor) -> Tensor:
            projected = self.cross_query(x)
            query = projected.view(shape)[:, :, 0]
            if cross_attention is not None:
                cross_attention.append(attention_weights(query, cross[:, :, 0], cross_mask))
            found = None
            if new.numbers is not None and cross_mask is not None:
                found = gpu_layers.attended(projected, cross, cross_mask)
            if found is None:
                found = attend(query, cross[:, :, 0], cross[:, :, 1], cross_mask)
            return self.cross_out(found)

        x = self.self_residual(x, self_attention)
        x = self.cross_residual(x, source_attention)
        return self.feed_forward_residual(x, self.feed_forward)


def _square(weights: Weights, shape: Architecture, *names: str, of_steps: bool = False) -> AnyProjection:
    """Projections from the model's dimension to itself."""
    return weights.projection(*names, inputs=shape.dim, outputs=shape.dim, fine=of_steps, of_steps=of_steps)


def _residual(weights: Weights, name: str, shape: Architecture) -> Residual:
    return Residual(weights.norm(name, shape.dim, shape.norm_epsilon), shape.norm_first)


def _feed_forward(weights: Weights, name: str, shape: Architecture, of_steps: bool = False) -> FeedForward:
    hidden = weights.rows_of(f"{name}.fc1.weight")
    return FeedForward(
        weights.projection(f"{name}.fc1", inputs=shape.dim, outputs=hidden, fine=of_steps, of_steps=of_steps),
        weights.projection(f"{name}.fc2", inputs=hidden, outputs=shape.dim, fine=True, of_steps=of_steps),
        ACTIVATIONS[shape.activation],
    )
