"""Marian checkpoints (OPUS-MT and the shipped model): post-norm, sinusoidal positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knnmt.engine.architecture import Architecture, read_architecture


def marian_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read Marian's `config.json`."""
    return read_architecture(config, "marian", "sinusoidal")
