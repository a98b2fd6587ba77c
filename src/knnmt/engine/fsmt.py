"""FSMT checkpoints (facebook/wmt19-*, the paper's model): post-norm, fairseq's positions, a vocabulary a side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knnmt.engine.architecture import Architecture, read_architecture, read_size


def fsmt_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read FSMT's `config.json`.

    Old files leave out the output projection, which then is the target embedding, whatever the config says of ties.
    """
    return read_architecture(
        config,
        "fsmt",
        "fairseq",
        position_offset=read_size(config, "pad_token_id", least=0) + 1,
        output=("model.decoder.output_projection.weight", "model.decoder.embed_tokens.weight"),
    )
