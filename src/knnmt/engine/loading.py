"""From a model's name to a running engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.engine.base import Engine, Fingerprint, SpecialTokens
from knnmt.engine.checkpoint import (
    find_checkpoint,
    fingerprint,
    generation_settings,
    load_tensors,
    read_json,
    special_tokens,
)
from knnmt.engine.families import FAMILIES, MAY_STAY
from knnmt.engine.generic import GenericEngine, load_transformers_model
from knnmt.engine.precision import choose_device, choose_dtype
from knnmt.engine.shipped import DEFAULT_MODEL
from knnmt.engine.tokenizer import Tokenizer, load_tokenizer
from knnmt.engine.transformer import TransformerEngine
from knnmt.engine.weights import Weights
from knnmt.errors import CheckpointError

_UNBOUNDED = 512  # positions granted to models whose positions are relative, as T5's: memory has bounds


def load_engine(
    model: str | Path = DEFAULT_MODEL,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Engine[Any]:
    """Load a shipped model, a checkpoint directory or a Hugging Face name."""
    with timing.stage("loading"):
        directory = find_checkpoint(model)
        name = directory.name if isinstance(model, Path) else str(model)
        config = read_json(directory / "config.json")
        chosen_device = choose_device(device)
        chosen_dtype = choose_dtype(dtype, chosen_device)
        family = config.get("model_type")
        if family not in FAMILIES:
            running = load_transformers_model(directory, family, chosen_device, chosen_dtype)
            positions = config.get("max_position_embeddings") or config.get("n_positions") or _UNBOUNDED
            return GenericEngine(name, running, positions, *_settings(directory, config, positions))
        try:
            shape = FAMILIES[family](config)
        except KeyError as error:
            raise CheckpointError(f"{directory}: config.json lacks {error.args[0]!r}") from error
        weights = Weights(load_tensors(directory), str(directory), chosen_device, chosen_dtype)
        engine = TransformerEngine(name, shape, weights, *_settings(directory, config, shape.max_positions))
        weights.require_all_taken(MAY_STAY)
        return engine


def _settings(
    directory: Path, config: Mapping[str, Any], positions: int
) -> tuple[Tokenizer, SpecialTokens, DecodingConfig, Callable[[], Fingerprint]]:
    """What every engine is told beside its weights."""
    return (
        load_tokenizer(directory),
        special_tokens(directory, config),
        generation_settings(directory, config, positions),
        lambda: fingerprint(directory),
    )
