"""The shipped model, loaded once for all who ask for it: that takes half a second, and nothing changes an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from knnmt.engine.base import Engine
from knnmt.engine.loading import load_engine
from knnmt.engine.shipped import DEFAULT_MODEL, shipped_models

ASKING = ("knnmt.engine.loading", "knnmt.translator.translator")  # where `load_engine` is looked up


def sharing() -> Callable[..., Engine[Any]]:
    """`load_engine`, which gives the same engine to all who ask for a shipped model alike."""
    engines: dict[object, Engine[Any]] = {}

    def shared(model: str | Path = DEFAULT_MODEL, *given: Any, **named: Any) -> Engine[Any]:
        if model not in shipped_models():
            return load_engine(model, *given, **named)
        asked = repr((model, given, named))
        if asked not in engines:
            engines[asked] = load_engine(model, *given, **named)
        return engines[asked]

    return shared
