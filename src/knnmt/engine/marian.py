"""Marian checkpoints (OPUS-MT and the shipped model): post-norm, sinusoidal positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knnmt.engine.architecture import Activation, Architecture
from knnmt.engine.transformer import embedding_scale
from knnmt.errors import UnsupportedModelError

ACTIVATION_NAMES: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}

# Tied copies of the shared embedding, which older files hold as well.
MAY_STAY = {
    "lm_head.weight",
    "lm_head.bias",
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
}


def marian_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read Marian's `config.json`."""
    activation = config.get("activation_function", "gelu")
    if activation not in ACTIVATION_NAMES:
        raise UnsupportedModelError(
            f"config.json: activation_function is {activation!r}; this version runs {', '.join(ACTIVATION_NAMES)}"
        )
    dim = config["d_model"]
    return Architecture(
        family="marian",
        dim=dim,
        encoder_layers=config["encoder_layers"],
        decoder_layers=config["decoder_layers"],
        encoder_heads=config["encoder_attention_heads"],
        decoder_heads=config["decoder_attention_heads"],
        max_positions=config["max_position_embeddings"],
        activation=ACTIVATION_NAMES[activation],
        embedding_scale=embedding_scale(dim, config.get("scale_embedding", False)),
        positions="sinusoidal",
        tied_output=config.get("tie_word_embeddings", True),
    )
