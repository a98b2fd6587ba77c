"""Systems to compare: the model alone, or the model with a store and its own settings, each with a name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from knnmt.errors import SettingError
from knnmt.extensions import SYSTEMS, named
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.settings import described, parsed, spelled
from knnmt.translator.settings import PRESETS, Preset, TranslationSettings, translation_settings

if TYPE_CHECKING:
    from knnmt.translator.translator import Translator

BASE = "base"
DESCRIPTION = "[NAME=]STORE[,SETTING=VALUE]..."  # how the command line asks for a system
OTHER = "NAME=URL,model=MODEL[,store=STORE,examples=N]"  # or, of `evaluate`, for a large language model
_MAX_NAME_BYTES = 200  # bytes; file systems take 255, and file names add an ending


USUAL_RUN = TranslationSettings(batch_size=32).over(PRESETS["raw"])
"""Settings of measurements where nothing else is said: texts as they are, in batches of the same size everywhere."""


def run_settings(given: RetrievalSettings | Preset | None) -> TranslationSettings:
    """The settings that all compared systems share: those given, before `USUAL_RUN`."""
    return translation_settings(given).over(USUAL_RUN).resolved()


class OtherSystem(Protocol):
    """A system that does not translate with knnmt's model. Its `repr` says all that its results depend on."""

    def signature(self, translator: Translator, datastore: Path | None) -> str:
        """Identifies it in published scores."""

    def translations(
        self, translator: Translator, datastore: Path | None, sources: Sequence[str], languages: tuple[str, str]
    ) -> tuple[list[str], int, float]:
        """Hypotheses, one for each source, the number of their tokens (0 if unknown), and seconds."""


@dataclass(frozen=True, slots=True)
class System:
    """A way to translate that is compared with others.

    datastore: None for the model alone
    settings: before those that all systems share
    exact: search every key, even if there is an index
    other: translates instead of knnmt's model, and may use the datastore
    """

    name: str
    datastore: Path | None = None
    exact: bool = False
    settings: RetrievalSettings = field(default_factory=TranslationSettings)
    other: OtherSystem | None = None


def with_store(datastore: Path) -> System:
    """The model with a store, under the name of the store's directory; `base` always names the model alone."""
    # A link keeps its own name. Only a path without a name, such as `.`, is resolved.
    name = datastore.name if datastore.name not in ("", "..") else datastore.resolve().name
    return System(f"{name}.store" if name == BASE else name, datastore)


def parse_system(text: str) -> System:
    """A system as the command line writes it: `base`, `STORE`, or `NAME=STORE,cache=6,k=8,exact`.

    The name is the store's unless one is given. Settings are those of `knnmt translate`, without their dashes.
    """
    name, _, content = text.partition("=") if "=" in text.partition(",")[0] else ("", "", text)
    first, *others = content.split(",")
    scheme, colon, _ = first.partition("://")
    if colon:
        parse = named(scheme, SYSTEMS, "kind of system")
        system: System = parse(text, name, first, others)
        return system
    if not first:
        raise SettingError(f"{text}: expected {BASE}, STORE, or NAME=STORE,SETTING=VALUE,…")
    settings: dict[str, Any] = {}
    for other in others:
        key, _, value = other.partition("=")
        if key == "exact" and not value:
            continue
        try:
            setting, given = parsed(TranslationSettings, key, value)
        except LookupError:
            names = ", ".join(spelled(TranslationSettings))
            raise SettingError(f"{text}: there is no setting {key!r}; the settings are exact, {names}") from None
        except ValueError:
            raise SettingError(f"{text}: {value!r} is not a value of {key}") from None
        known = described(TranslationSettings)[setting]
        if first == BASE and known.group in ("memory", "retrieval"):
            raise SettingError(f"{text}: the model alone has no setting {key}, which is for a memory: leave it out")
        settings[setting] = (*settings.get(setting, ()), *given) if known.many else given
    if first == BASE:
        return System(name or BASE, settings=TranslationSettings(**settings))
    place = Path(first)
    return System(name or with_store(place).name, place, "exact" in others, TranslationSettings(**settings))


def gather_systems(datastores: Sequence[Path], described: Sequence[str | System], base: bool = True) -> list[System]:
    """Stores, then other systems, also as the command line writes them; with `base`, the model alone comes first."""
    systems = [*map(with_store, datastores)]
    systems += [each if isinstance(each, System) else parse_system(each) for each in described]
    if base:
        alone = [system for system in systems if _is_alone(system)] or [System(BASE)]
        systems = [*alone, *(system for system in systems if not _is_alone(system))]
    if not systems:
        raise SettingError("--no-base leaves no system to evaluate; name one: -d STORE, or --system NAME=STORE,…")
    check_names(systems)
    return systems


def _is_alone(system: System) -> bool:
    return system.datastore is None and system.other is None


def check_names(systems: Sequence[System]) -> None:
    """Refuse two systems with the same name, and names that a file cannot have."""
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"two systems are called {name!r}; give them names: --system NAME=STORE,…")
        sound = name.isprintable() and not any(letter in name for letter in "/\\") and not name.startswith(".")
        if not (name and sound and len(os.fsencode(name)) <= _MAX_NAME_BYTES):
            raise SettingError(
                f"a system cannot be called {name!r}, because no file can have this name; give it another: "
                "--system NAME=STORE,…"
            )
