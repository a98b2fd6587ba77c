"""Systems to compare: the model alone, or the model with a store and settings of its own, each under a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knnmt.errors import SettingError

BASE = "base"
_SETTINGS: dict[str, tuple[str, Any]] = {
    "k": ("k", int),
    "lambda": ("interpolation_weight", float),
    "temperature": ("temperature", float),
    "fading": ("fading", lambda text: _yes_or_no(text)),
    "cache": ("cache", str),
    "cache-scope": ("cache_scope", str),
    "cache-hits": ("cache_hits", lambda text: _yes_or_no(text)),
    "profile": ("profile", str),
}


@dataclass(frozen=True, slots=True)
class System:
    """A way to translate that is compared with others.

    datastore: None for the model alone
    exact: search every key, whatever index there is
    settings: as `RetrievalSettings` of the translator has them
    """

    name: str
    datastore: Path | None = None
    exact: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def parse_system(text: str) -> System:
    """A system as the command line writes it: `base`, `STORE`, or `NAME=STORE,cache=6,k=8,exact`.

    The name is the store's unless one is given. Settings are those of `knnmt translate`, without their dashes.
    """
    name, _, described = text.partition("=") if "=" in text.partition(",")[0] else ("", "", text)
    first, *others = described.split(",")
    if first == BASE:
        if others:
            raise SettingError(f"{text}: the model alone has no settings; expected {BASE}, or NAME={BASE}")
        return System(name or BASE)
    if not first:
        raise SettingError(f"{text}: expected {BASE}, STORE, or NAME=STORE,SETTING=VALUE,…")
    settings: dict[str, Any] = {}
    for other in others:
        key, _, value = other.partition("=")
        if key == "exact" and not value:
            continue
        if key not in _SETTINGS:
            raise SettingError(f"{text}: no setting {key!r}; there are exact, {', '.join(_SETTINGS)}")
        place, convert = _SETTINGS[key]
        try:
            settings[place] = convert(value)
        except ValueError:
            raise SettingError(f"{text}: {value!r} is no value for {key}") from None
    return System(name or Path(first).name, Path(first), "exact" in others, settings)


def parse_systems(texts: Sequence[str]) -> list[System]:
    """Several of them, whose names must differ."""
    systems = [parse_system(text) for text in texts]
    require_different_names(systems)
    return systems


def require_different_names(systems: Sequence[System]) -> None:
    """Refuse two systems of one name."""
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"two systems are called {name!r}; give them names: --system NAME=STORE,…")


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"
