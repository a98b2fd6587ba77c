"""BART and mBART checkpoints: learned positions and a normalised embedding; mBART norms before each block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knnmt.engine.architecture import Architecture, read_architecture

_OFFSET = 2  # two rows of the position table were kept for padding


def bart_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read BART's `config.json`."""
    return read_architecture(config, "bart", "learned", position_offset=_OFFSET, embedding_norm=True)


def mbart_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read mBART's `config.json`, that of mBART-50 too."""
    return read_architecture(
        config, "mbart", "learned", position_offset=_OFFSET, embedding_norm=True, norm_first=True, final_norm=True
    )
