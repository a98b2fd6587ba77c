"""Custom gates and combiners, made by the names that a call gives (`knnmt.extensions`).

The named object is called with the open store, the settings and the engine, and returns the gate or the combiner.
"""

from __future__ import annotations

from typing import Any

from knnmt.config import RetrievalConfig, check
from knnmt.engine.base import Engine
from knnmt.extensions import COMBINERS, GATES, named
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.step import Combiner, Gate, takes


def plugin_gate(name: str, store: OpenStore, config: RetrievalConfig, engine: Engine[Any]) -> Gate:
    """The gate of that name for a store."""
    part: Gate = _made(name, GATES, "gate", store, config, engine)
    return part


def plugin_combiner(name: str, store: OpenStore, config: RetrievalConfig, engine: Engine[Any]) -> Combiner:
    """The combiner of that name for a store."""
    part: Combiner = _made(name, COMBINERS, "combiner", store, config, engine)
    return part


def _made(name: str, group: str, what: str, *given: Any) -> Any:
    make = named(name, group, what)
    sound = callable(make) and takes(make, len(given))
    check(sound, f"{what} {name!r}: expected a class or function that can be called with (store, config, engine)")
    part = make(*given)
    check(callable(part), f"{what} {name!r}: made {type(part).__name__}, which cannot be called")
    return part
