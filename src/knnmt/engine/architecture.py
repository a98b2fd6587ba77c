"""The switches by which one transformer serves several families of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["relu", "gelu", "swish"]
Positions = Literal["sinusoidal", "learned"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family's reading of `config.json`. Sizes that the weights themselves tell are not repeated here.

    norm_first: layer norm before each block (pre-norm) instead of after the residual sum (post-norm)
    final_norm: one more layer norm after the last layer of encoder and decoder
    embedding_norm: a layer norm on the embedded input
    positions: how the position table is made when the checkpoint does not hold it
    tied_output: the output projection is the target embedding, whatever else the file holds
    position_offset: row of the position table that belongs to the first token
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
    positions: Positions
    tied_output: bool = True
    position_offset: int = 0
    norm_first: bool = False
    final_norm: bool = False
    embedding_norm: bool = False
    norm_epsilon: float = 1e-5
