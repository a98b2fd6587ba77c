"""Settings saved with a store under names, because the best are others for each method and each domain.

In `settings.json`: "profiles" maps names to whole settings with where they come from; "default_profile" names the one
that is used when a call names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from knnmt.config import CacheConfig, Fading, RetrievalConfig, check
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.errors import DatastoreDamagedError, SettingError

PROFILES = "profiles"
DEFAULT = "default_profile"
ESTIMATED = "estimated"  # no saved one: what was estimated from the store alone


@dataclass(frozen=True, slots=True)
class Profile:
    """Whole settings of retrieval, and where they come from.

    method: what they were chosen by, "likelihood" or "bleu"
    pairs: development pairs that they were chosen on
    loss: of these pairs, in nats a token
    """

    config: RetrievalConfig
    method: str
    pairs: int
    loss: float


def read_profiles(store: Path) -> dict[str, Profile]:
    """Every profile of a store, by name."""
    return {name: _profile(store, name, content) for name, content in _section(store, read_settings(store)).items()}


def default_profile(store: Path) -> str | None:
    """The name of the profile that calls use unless they name another, or None."""
    name = read_settings(store).get(DEFAULT)
    return None if name is None else str(name)


def chosen_profile(store: Path, name: str | None) -> RetrievalConfig | None:
    """The settings of a call that names this profile, or none; None for those estimated from the store."""
    settings = read_settings(store)
    name = name or settings.get(DEFAULT) or ESTIMATED
    if name == ESTIMATED:
        return None
    profiles = _section(store, settings)
    if name not in profiles:
        raise SettingError(
            f"{store}: no profile {name!r}; it has {', '.join([*profiles, ESTIMATED])}. `knnmt tune` makes some"
        )
    return _profile(store, name, profiles[name]).config


def _section(store: Path, settings: dict[str, Any]) -> dict[str, Any]:
    section = settings.get(PROFILES, {})
    if not isinstance(section, dict):
        raise _damaged(store, PROFILES, f"expected names with settings, found {type(section).__name__}")
    return section


def check_name(name: str) -> None:
    """Refuse a name that a profile cannot have."""
    check(bool(name.strip()) and name != ESTIMATED, f"a profile cannot be called {name!r}; choose another name")


def write_profiles(store: Path, profiles: Mapping[str, Profile | None], default: str | None = None) -> None:
    """Save profiles in the place of those of the same name; None removes one. `default` names one of them, if given."""
    for name in profiles:
        check_name(name)
    settings = read_settings(store)
    earlier = settings.get(PROFILES)
    kept = earlier if isinstance(earlier, dict) else {}  # what is damaged is written anew
    section = {**kept, **{name: each and asdict(each) for name, each in profiles.items()}}
    section = {name: content for name, content in section.items() if content is not None}
    write_settings(store, **{PROFILES: section, DEFAULT: default or settings.get(DEFAULT)})


def _profile(store: Path, name: str, content: Any) -> Profile:
    try:
        config = dict(content["config"])
        check(isinstance(config["k"], int), f"k must be a whole number, got {config['k']!r}")
        fading, cache = config["fading"], config["cache"]
        config["fading"] = fading and Fading(**{each: float(value) for each, value in fading.items()})
        config["cache"] = cache and CacheConfig(**cache)
        return Profile(**{**content, "config": RetrievalConfig(**config)})
    except (TypeError, KeyError, ValueError, AttributeError, SettingError) as error:
        raise _damaged(store, name, str(error)) from error


def _damaged(store: Path, name: str, problem: str) -> DatastoreDamagedError:
    return DatastoreDamagedError(
        f"{store}: its profile {name!r} lacks a field, has an unknown one or a wrong value ({problem}); "
        f"`knnmt tune {store} --dev DEV --profile {name}` writes it again."
    )
