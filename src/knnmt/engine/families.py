"""The families of checkpoints that our own transformer runs, by the `model_type` of their `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from knnmt.engine.architecture import Architecture
from knnmt.engine.bart import bart_architecture, mbart_architecture
from knnmt.engine.fsmt import fsmt_architecture
from knnmt.engine.m2m100 import m2m100_architecture
from knnmt.engine.marian import marian_architecture
from knnmt.engine.pegasus import pegasus_architecture
from knnmt.engine.transformer import TIED

FAMILIES: dict[str, Callable[[Mapping[str, Any]], Architecture]] = {
    "marian": marian_architecture,
    "fsmt": fsmt_architecture,
    "bart": bart_architecture,
    "mbart": mbart_architecture,
    "m2m_100": m2m100_architecture,
    "pegasus": pegasus_architecture,
}

_FAIRSEQ_TOKENS = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
# What published configs leave unsaid, for `transformers` knows it. (mBART's start is the code of the target language.)
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
    """The config with what its family means where it says nothing; a null says something, except of the start token."""
    said = {name: value for name, value in config.items() if value is not None or name != "decoder_start_token_id"}
    return {**_UNSAID.get(str(config.get("model_type")), {}), **said}


# What files hold besides what is taken: copies of a tied table, and tables that are computed here.
MAY_STAY = {
    *TIED,
    "lm_head.bias",
    *(
        f"model.{side}.{name}"
        for side in ("encoder", "decoder")
        for name in ("embed_positions.weights", "embed_positions._float_tensor", "version")
    ),
}
