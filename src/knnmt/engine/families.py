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
