"""Pegasus checkpoints: pre-norm, Marian's positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knnmt.engine.architecture import Architecture, read_architecture


def pegasus_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read Pegasus's `config.json`."""
    return read_architecture(config, "pegasus", "sinusoidal", norm_first=True, final_norm=True)
