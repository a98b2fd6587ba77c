"""M2M100 and NLLB checkpoints: pre-norm, fairseq's positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knnmt.engine.architecture import Architecture, read_architecture, read_size


def m2m100_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read the `config.json` of M2M100 and NLLB."""
    offset = read_size(config, "pad_token_id", least=0) + 1
    return read_architecture(config, "m2m_100", "fairseq", position_offset=offset, norm_first=True, final_norm=True)
