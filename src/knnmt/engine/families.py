"""The families of checkpoints that our own transformer runs, named by the `model_type` in `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from knnmt.engine.architecture import Architecture, read_architecture, read_size
from knnmt.engine.blocks import TIED

_BART_OFFSET = 2  # the first two rows of the position table are reserved for padding


def marian_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read Marian's `config.json` (OPUS-MT and the shipped model): post-norm, sinusoidal positions."""
    return read_architecture(config, "marian", "sinusoidal")


def fsmt_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read FSMT's `config.json` (the paper's model): post-norm, fairseq's positions, one vocabulary for each side.

    Old files leave out the output projection. It is then the target embedding, whatever the config says about tying.
    """
    return read_architecture(
        config,
        "fsmt",
        "fairseq",
        position_offset=read_size(config, "pad_token_id", least=0) + 1,
        output=("model.decoder.output_projection.weight", "model.decoder.embed_tokens.weight"),
    )


def bart_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read BART's `config.json`: learned positions and a normalised embedding."""
    return read_architecture(config, "bart", "learned", position_offset=_BART_OFFSET, embedding_norm=True)


def mbart_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read the `config.json` of mBART and mBART-50: as BART's, but pre-norm."""
    return read_architecture(
        config, "mbart", "learned", position_offset=_BART_OFFSET, embedding_norm=True, norm_first=True, final_norm=True
    )


def m2m100_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read the `config.json` of M2M100 and NLLB: pre-norm, fairseq's positions."""
    offset = read_size(config, "pad_token_id", least=0) + 1
    return read_architecture(config, "m2m_100", "fairseq", position_offset=offset, norm_first=True, final_norm=True)


def pegasus_architecture(config: Mapping[str, Any]) -> Architecture:
    """Read Pegasus's `config.json`: pre-norm, Marian's positions."""
    return read_architecture(config, "pegasus", "sinusoidal", norm_first=True, final_norm=True)


FAMILIES: dict[str, Callable[[Mapping[str, Any]], Architecture]] = {
    "marian": marian_architecture,
    "fsmt": fsmt_architecture,
    "bart": bart_architecture,
    "mbart": mbart_architecture,
    "m2m_100": m2m100_architecture,
    "pegasus": pegasus_architecture,
}

_FAIRSEQ_TOKENS = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
# Defaults that published configs leave out, because `transformers` knows them. (mBART starts with the target's code.)
_UNSAID: dict[str, dict[str, Any]] = {
    "marian": {"forced_eos_token_id": 0},
    "fsmt": {
        **_FAIRSEQ_TOKENS,
        "forced_eos_token_id": 2,
        "activation_function": "relu",
        "scale_embedding": True,
        "tie_word_embeddings": False,
        "num_beams": 5,
        "max_length": 200,
    },
    "bart": {**_FAIRSEQ_TOKENS, "forced_eos_token_id": 2},
    "mbart": {**_FAIRSEQ_TOKENS, "forced_eos_token_id": 2},
    "m2m_100": {**_FAIRSEQ_TOKENS, "activation_function": "relu", "scale_embedding": True},
    "pegasus": {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1},
}


def with_unsaid(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with its family's defaults for missing fields. A null is a value, except for the start token."""
    said = {name: value for name, value in config.items() if value is not None or name != "decoder_start_token_id"}
    return {**_UNSAID.get(str(config.get("model_type")), {}), **said}


# Weights in files that nothing asks for: copies of a tied table, and tables that are computed here.
MAY_STAY = {
    *TIED,
    "lm_head.bias",
    *(
        f"model.{side}.{name}"
        for side in ("encoder", "decoder")
        for name in ("embed_positions.weights", "embed_positions._float_tensor", "version")
    ),
}
