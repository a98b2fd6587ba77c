"""The switches with which one transformer runs several families of checkpoints, and how a config sets them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from knnmt.errors import UnsupportedModelError
from knnmt.records import as_type, shown

Activation = Literal["relu", "gelu", "swish"]
PositionKind = Literal["sinusoidal", "fairseq", "learned"]

_MAX_SIZE = 1 << 16  # the largest number of positions, dimensions or layers that config.json may state
_ACTIVATION_NAMES: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family's reading of `config.json`. It leaves out the sizes that the weights show.

    norm_first: layer norm before each block (pre-norm) instead of after the residual sum (post-norm)
    final_norm: one more layer norm after the last layer of encoder and decoder
    embedding_norm: a layer norm on the embedded input
    positions: how the position table is made when the checkpoint does not hold it
    position_offset: row of the position table that belongs to the first token
    tied: source embedding, target embedding and output projection are one table, whatever its name in the file
    output: name of the output projection in files that have a separate one
    """

    family: str
    dim: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    max_positions: int
    activation: Activation
    embedding_scale: float
    positions: PositionKind
    position_offset: int = 0
    tied: bool = True
    output: tuple[str, ...] = ("lm_head.weight",)
    norm_first: bool = False
    final_norm: bool = False
    embedding_norm: bool = False
    norm_epsilon: float = 1e-5


def read_architecture(config: Mapping[str, Any], family: str, positions: PositionKind, **switches: Any) -> Architecture:
    """Read the fields of `config.json` that all families share, by their current or old names, and add the switches.

    A missing field raises KeyError; an impossible value raises ValueError.
    """
    activation = as_type(str, config.get("activation_function", "gelu"), "activation_function")
    if activation not in _ACTIVATION_NAMES:
        raise UnsupportedModelError(
            f"config.json: activation_function is {activation!r}; this version runs {', '.join(_ACTIVATION_NAMES)}"
        )
    dim = read_size(config, "d_model", "hidden_size")
    return Architecture(
        family=family,
        dim=dim,
        encoder_layers=read_size(config, "encoder_layers", "num_hidden_layers"),
        decoder_layers=read_size(config, "decoder_layers"),
        encoder_heads=read_size(config, "encoder_attention_heads", "num_attention_heads"),
        decoder_heads=read_size(config, "decoder_attention_heads"),
        max_positions=read_size(config, "max_position_embeddings"),
        activation=_ACTIVATION_NAMES[activation],
        embedding_scale=math.sqrt(dim) if _flag(config, "scale_embedding", False) else 1.0,
        positions=positions,
        tied=_flag(config, "tie_word_embeddings", True),
        **switches,
    )


def read_size(config: Mapping[str, Any], name: str, old_name: str = "", least: int = 1) -> int:
    """A size from the config; ValueError if it is not a number, is below `least`, or is larger than any model has."""
    name = old_name if name not in config and old_name in config else name
    size: int = as_type(int, config[name], name)
    if not least <= size <= _MAX_SIZE:
        raise ValueError(f"{name}: expected a number from {least} to {_MAX_SIZE:,}, found {shown(size)}")
    return size


def _flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    value: bool | None = as_type(bool | None, config.get(name), name)
    return default if value is None else value
