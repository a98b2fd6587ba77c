"""From a model's name to a running engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from knnmt import timing
from knnmt.engine.architecture import read_size
from knnmt.engine.base import Engine
from knnmt.engine.checkpoint import (
    find_checkpoint,
    fingerprint,
    generation_settings,
    load_tensors,
    read_json,
    read_tokenizer_config,
    special_tokens,
)
from knnmt.engine.families import FAMILIES, MAY_STAY, with_unsaid
from knnmt.engine.generic import GenericEngine, load_transformers_model
from knnmt.engine.languages import ConfigureLanguages, LanguageSetup, configure_languages, stated_languages
from knnmt.engine.precision import choose_device, choose_dtype
from knnmt.engine.shipped import DEFAULT_MODEL, MODELS_DIRECTORY
from knnmt.engine.tokenizer import load_tokenizer
from knnmt.engine.transformer import TransformerEngine
from knnmt.engine.weights import Weights
from knnmt.errors import CheckpointError
from knnmt.records import as_type

_UNBOUNDED = 512  # positions for models with relative positions, such as T5, because memory is limited


def load_engine(
    model: str | Path = DEFAULT_MODEL,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> Engine[Any]:
    """Load a shipped model, a checkpoint directory or a Hugging Face name.

    source_lang, target_lang: language tags, or the model's own codes; a multilingual model needs them
    """
    with timing.stage("loading"):
        directory = find_checkpoint(model)
        name = str(model)  # a store finds the model by this name
        config = with_unsaid(read_json(directory / "config.json"))
        try:
            family = as_type(str | None, config.get("model_type"), "model_type")
            shape = FAMILIES[family](config) if family in FAMILIES else None
            positions = _positions(config) if shape is None else shape.max_positions
        except KeyError as error:
            raise CheckpointError(f"{directory}: config.json lacks {error.args[0]!r}") from error
        except ValueError as error:
            raise CheckpointError(f"{directory}: config.json: {error}") from error
        chosen_device = choose_device(device)
        chosen_dtype = choose_dtype(dtype, chosen_device, with_int8=family in FAMILIES)
        configure = _configure(directory, config, positions)
        setup = configure(source_lang, target_lang)
        read_once = cache(lambda: fingerprint(directory))
        if shape is None:
            running = load_transformers_model(directory, family, chosen_device, chosen_dtype)
            return GenericEngine(name, running, positions, setup, configure, read_once)
        weights = Weights(load_tensors(directory), str(directory), chosen_device, chosen_dtype)
        engine = TransformerEngine(name, shape, weights, setup, configure, read_once)
        weights.require_all_taken(MAY_STAY)
        return engine


def _positions(config: Mapping[str, Any]) -> int:
    """The number of positions of a model that `transformers` runs."""
    name = "max_position_embeddings" if config.get("max_position_embeddings") else "n_positions"
    return read_size(config, name) if config.get(name) else _UNBOUNDED


def _configure(directory: Path, config: Mapping[str, Any], positions: int) -> ConfigureLanguages:
    """Make the function that sets an engine's parts beside its weights to given languages."""
    tokenizer_config = read_tokenizer_config(directory, config)
    plain = LanguageSetup(
        stated_languages(directory, config, tokenizer_config),
        load_tokenizer(directory),
        special_tokens(directory, config),
        generation_settings(directory, config, positions),
    )
    # The shipped models have two languages. To look for more would only cost time at every start.
    family = None if directory.parent == MODELS_DIRECTORY else config.get("model_type")

    def configure(source: str | None, target: str | None) -> LanguageSetup:
        setup = configure_languages(plain, family, tokenizer_config, source, target)
        longest = min(setup.generation.max_tokens, setup.text_positions(positions) - 1)
        return replace(setup, generation=replace(setup.generation, max_tokens=longest))

    return configure
