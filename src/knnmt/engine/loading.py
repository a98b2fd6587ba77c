"""From a model's name to a running engine."""

from __future__ import annotations

from pathlib import Path

import torch

from knnmt import timing
from knnmt.engine.checkpoint import (
    find_checkpoint,
    fingerprint,
    generation_settings,
    load_tensors,
    read_json,
    special_tokens,
)
from knnmt.engine.families import FAMILIES, MAY_STAY
from knnmt.engine.precision import choose_device, choose_dtype
from knnmt.engine.shipped import DEFAULT_MODEL
from knnmt.engine.tokenizer import load_tokenizer
from knnmt.engine.transformer import TransformerEngine
from knnmt.engine.weights import Weights
from knnmt.errors import CheckpointError, UnsupportedModelError


def load_engine(
    model: str | Path = DEFAULT_MODEL,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> TransformerEngine:
    """Load a shipped model, a checkpoint directory or a Hugging Face name."""
    with timing.stage("loading"):
        directory = find_checkpoint(model)
        config = read_json(directory / "config.json")
        family = config.get("model_type")
        if family not in FAMILIES:
            raise UnsupportedModelError(
                f"{directory}: config.json says model_type {family!r}; this version runs {', '.join(FAMILIES)}"
            )
        try:
            shape = FAMILIES[family](config)
        except KeyError as error:
            raise CheckpointError(f"{directory}: config.json lacks {error.args[0]!r}") from error
        chosen_device = choose_device(device)
        weights = Weights(load_tensors(directory), str(directory), chosen_device, choose_dtype(dtype, chosen_device))
        engine = TransformerEngine(
            name=directory.name if isinstance(model, Path) else str(model),
            shape=shape,
            weights=weights,
            tokenizer=load_tokenizer(directory),
            special_tokens=special_tokens(directory, config),
            generation=generation_settings(directory, config),
            fingerprint=lambda: fingerprint(directory),
        )
        weights.require_all_taken(MAY_STAY)
        return engine
