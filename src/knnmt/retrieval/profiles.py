"""Named settings that are saved with a store, because the best settings differ for each method and each domain.

In `settings.json`, "profiles" maps names to complete settings with their origin; "default_profile" names the one that
is used if a call names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from knnmt.config import RetrievalConfig, check
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.errors import DatastoreDamagedError, SettingError, quoted
from knnmt.records import as_record

PROFILES = "profiles"
DEFAULT = "default_profile"
ESTIMATED = "estimated"  # not a saved profile: the settings estimated from the store alone
FAST = "fast"  # the default name of a tuning for Fast kNN-MT, which calls with `fast` use
SEGMENTS = "segments"  # the default name of a tuning by likelihood
TUNED, BY_BLEU = "knn", "bleu"  # the same for search of the whole store, by likelihood and by BLEU
_FIXED, _CACHE = "-fixed", "-cache"


@dataclass(frozen=True, slots=True)
class Profile:
    """Complete settings of retrieval, and their origin.

    method: how they were chosen, by "likelihood" or "bleu"
    pairs: number of development pairs that they were chosen on
    loss: on the text for tuning, in nats per token; None if it is not known, as with a cache
    """

    config: RetrievalConfig
    method: str
    pairs: int
    loss: float | None

    def __post_init__(self) -> None:
        check(self.pairs >= 0, f"pairs cannot be negative, got {self.pairs}")


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles of a store as its settings hold them; a damaged profile is an error when it is used.

    section: names with complete settings; default: one of the names, or None; if damaged, either may be anything
    """

    store: Path
    section: Any
    default: Any

    @classmethod
    def of(cls, path: Path) -> Profiles:
        """The profiles that are in a store's settings now."""
        settings = read_settings(path)
        return cls(path, settings.get(PROFILES, {}), settings.get(DEFAULT))

    def names(self) -> list[str]:
        """Every name, whether its profile can be read or not."""
        if not isinstance(self.section, dict):
            raise DatastoreDamagedError(
                f"{self.store}: its profiles cannot be read: expected names with settings, found "
                f"{type(self.section).__name__}; `knnmt tune {quoted(self.store)} --dev DEV` writes them again."
            )
        return list(self.section)

    def profile(self, name: str) -> Profile:
        """The profile of this name."""
        if name not in self.names():
            raise SettingError(
                f"{self.store}: has no profile {name!r}; it has {', '.join([*self.section, ESTIMATED])}. `knnmt "
                f"tune` makes profiles"
            )
        try:
            return as_record(Profile, self.section[name])
        except ValueError as error:
            raise DatastoreDamagedError(
                f"{self.store}: its profile {name!r} lacks a field, has an unknown one or a wrong value ({error}); "
                f"`knnmt tune {quoted(self.store)} --dev DEV --profile {quoted(_tuned_with(name))}` "
                "writes it again."
            ) from error

    def default_name(self) -> str | None:
        """The profile that calls use unless they name another, or None."""
        if self.default is None or isinstance(self.default, str):
            return self.default or None
        raise DatastoreDamagedError(
            f"{self.store}: {DEFAULT} must be the name of a profile, found {self.default!r}; name a profile in each "
            f"call, or write it again: `knnmt tune {quoted(self.store)} --dev DEV`."
        )

    def chosen(self, name: str | None) -> RetrievalConfig | None:
        """The settings of a call that names this profile or none; None for the settings estimated from the store."""
        name = name or self.default_name() or ESTIMATED
        return None if name == ESTIMATED else self.profile(name).config

    def of_search(self, by_segment: bool) -> RetrievalConfig | None:
        """The settings of a call that names a kind of search but no profile; None for the estimated settings."""
        for name in (self.default_name(), SEGMENTS if by_segment else TUNED):
            if name in self.names():
                config = self.profile(name).config
                if config.fast is None and (config.segments is not None) == by_segment:
                    return config
        return None


def read_profiles(path: Path) -> dict[str, Profile]:
    """Every profile of a store, by name."""
    found = Profiles.of(path)
    return {name: found.profile(name) for name in found.names()}


def default_profile(path: Path) -> str | None:
    """The name of the profile that calls use unless they name another, or None."""
    return Profiles.of(path).default_name()


def check_name(name: str) -> None:
    """Refuse a name that a profile cannot have."""
    check(bool(name.strip()) and name != ESTIMATED, f"a profile cannot be called {name!r}; choose another name")


def names_of_tuning(name: str) -> tuple[str, str, str]:
    """The names that one tuning saves: (NAME, NAME-fixed, NAME-cache); the cache of `knn` is just `cache`."""
    check_name(name)
    check(
        _tuned_with(name) == name,
        f"a profile of tuning cannot be called {name!r}, because tuning {_tuned_with(name)!r} saves a profile of "
        f"this name; choose another name",
    )
    return name, f"{name}{_FIXED}", _CACHE[1:] if name == TUNED else f"{name}{_CACHE}"


def _tuned_with(name: str) -> str:
    """The name of the tuning that saves a profile of this name."""
    if name == _CACHE[1:]:
        return TUNED
    return name.removesuffix(_FIXED).removesuffix(_CACHE)


def write_profiles(path: Path, profiles: Mapping[str, Profile | None], default: str | None = None) -> None:
    """Save profiles; they replace those of the same name. None removes one. `default` names the default, if given."""
    for name in profiles:
        check_name(name)
    earlier = Profiles.of(path)
    kept = earlier.section if isinstance(earlier.section, dict) else {}  # a damaged section is replaced
    before = earlier.default if isinstance(earlier.default, str) else None
    section = {**kept, **{name: each and asdict(each) for name, each in profiles.items()}}
    section = {name: content for name, content in section.items() if content is not None}
    write_settings(path, **{PROFILES: section, DEFAULT: default or before})
