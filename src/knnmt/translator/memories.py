"""The stores that a translator has open, and the settings that a call retrieves with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from knnmt.compression.pca import Projection
from knnmt.config import CacheConfig, RetrievalConfig, check
from knnmt.datastore.manifest import read_manifest
from knnmt.datastore.settings import settings_changed
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine, State
from knnmt.errors import SettingError
from knnmt.retrieval.calibration import DEFAULT_K, Calibration, calibrate
from knnmt.retrieval.held_out import sample
from knnmt.retrieval.matches import SourceMatcher
from knnmt.retrieval.profiles import Profiles
from knnmt.retrieval.retriever import OpenStore, Retrieval

THE_CALLS_STORE = "\0"  # no path can be that, so that a store may have any name
_FEW_SENTENCES = 50  # asked by a store that nothing was estimated for, whenever it is opened
Store = str | Path | Datastore


def languages_of(store: Store) -> tuple[str, str]:
    """The languages that a store was built for."""
    manifest = store.manifest if isinstance(store, Datastore) else read_manifest(Path(store))
    return manifest.source_language, manifest.target_language


class RetrievalSettings(TypedDict, total=False):
    """How a call retrieves. What is not given is as the store's profile says, and else as estimated for it.

    k: neighbours a step
    interpolation_weight: a fixed λ; not given, λ fades where the memory has nothing alike
    temperature: T of equation 2
    fading: False keeps λ fixed without saying at what
    cache: τ as a number, or as a quantile of the distances between new states and the store ("20%"); None for no cache
    cache_scope: "sentence", or "batch" as in the paper's code
    cache_hits: keep hits in the cache too, as the paper's code does
    use_counts: after pruning, let an entry weigh as much as those it stands for
    profile: the name of settings saved with the store, or whole settings; "estimated" passes over what was tuned
    """

    k: int | None
    interpolation_weight: float | None
    temperature: float | None
    fading: bool | None
    cache: float | str | None
    cache_scope: Literal["sentence", "batch"]
    cache_hits: bool
    use_counts: bool
    profile: str | RetrievalConfig | None


@dataclass(frozen=True, slots=True)
class Request:
    """A text to translate with a memory, or settings, of its own.

    datastore: None for the model alone; by default what the call or the translator says
    """

    text: str
    datastore: Store | None = THE_CALLS_STORE
    k: int | None = None
    interpolation_weight: float | None = None
    temperature: float | None = None


@dataclass(slots=True, eq=False)
class Memory:
    """An open store with what is known of it.

    settings_changed: when the settings that `calibration` and `profiles` come from were written, 0 where there are none
    """

    opened: OpenStore
    calibration: Calibration
    profiles: Profiles
    matcher: SourceMatcher
    settings_changed: int


class Memories:
    """The open stores of one model, by their places."""

    def __init__(self, engine: Engine[State], exact: bool = False) -> None:
        self._engine: Engine[Any] = engine
        self._exact = exact
        self._open: dict[Path, Memory] = {}
        self._retrievals: dict[tuple[Path, RetrievalConfig], Retrieval] = {}

    def open(self, datastore: Store) -> Memory:
        """Open a store, or find it open; its settings are those that stand there now."""
        path = _place(datastore)
        if path not in self._open:
            store = Datastore.open(path, self._engine)
            opened = OpenStore(store, self._engine.device, self._exact)
            changed = settings_changed(path)
            calibration = self._calibration(opened)
            self._open[path] = Memory(opened, calibration, Profiles.of(path), SourceMatcher(store), changed)
        self._read_settings(self._open[path])  # a call may name a profile that was made since
        return self._open[path]

    def close(self, datastore: Store) -> None:
        """Forget a store that is open; its memory is given back."""
        path = _place(datastore)
        self._open.pop(path, None)
        self._retrievals = {key: value for key, value in self._retrievals.items() if key[0] != path}

    def refresh(self, datastores: Iterable[Store]) -> None:
        """Move those of these stores that are open to their newest generation, index and settings."""
        for path in self._open.keys() & {_place(each) for each in datastores}:
            memory = self._open[path]
            grown = memory.opened.refresh()
            self._read_settings(memory)
            if grown and Calibration.of(path) is None:  # an estimate is as old as the entries it was made from
                memory.calibration = self._calibration(memory.opened)

    def _read_settings(self, memory: Memory) -> None:
        """Read the settings of a store again if they were written since."""
        path = memory.opened.store.path
        changed = settings_changed(path)
        if changed != memory.settings_changed:
            memory.calibration, memory.profiles = self._calibration(memory.opened), Profiles.of(path)
            memory.settings_changed = changed

    def retrieval(self, datastore: Store, settings: Mapping[str, Any]) -> Retrieval:
        """How a call with these settings retrieves. Calls with equal settings get the same one."""
        memory = self.open(datastore)
        config = resolve(memory, settings)
        return self._retrievals.setdefault((memory.opened.store.path, config), Retrieval(memory.opened, config))

    def _calibration(self, opened: OpenStore) -> Calibration:
        known = Calibration.of(opened.store.path)
        if known is not None:
            return known
        if Projection.of(opened.store) is not None:
            return Calibration.unknown()  # an estimate needs the model's states, which its keys are not any more
        held_out = sample(opened.index.entries, _FEW_SENTENCES)
        estimated = calibrate(held_out, held_out.search(opened.index, DEFAULT_K), self._engine)
        return estimated or Calibration.unknown()


def _place(datastore: Store) -> Path:
    return (datastore.path if isinstance(datastore, Datastore) else Path(datastore)).resolve()


def check_names(settings: Iterable[str]) -> None:
    """Refuse settings that there are not: a misspelt one would be passed over in silence."""
    known = RetrievalSettings.__annotations__
    for name in settings:
        check(name in known, f"no setting is called {name!r}; those of retrieval are {', '.join(known)}")


def resolve(memory: Memory, settings: Mapping[str, Any]) -> RetrievalConfig:
    """The settings of a call: those given, else the profile's, else those estimated for the store."""
    given = {name: value for name, value in settings.items() if value is not None or name == "cache"}
    store = memory.opened.store
    profile = given.pop("profile", None)
    start = profile if isinstance(profile, RetrievalConfig) else memory.profiles.chosen(profile)
    fades = start is None or start.fading is not None
    fading = given.get("fading", fades and "interpolation_weight" not in given)
    estimated = memory.calibration.config(fading)
    if start is None:
        config = estimated
        needed = fading or not {"interpolation_weight", "temperature"} <= given.keys()
    elif fading == fades:
        config, needed = start, False
    else:  # λ of the other kind
        config = replace(start, interpolation_weight=estimated.interpolation_weight, fading=estimated.fading)
        needed = fading or "interpolation_weight" not in given
    if needed and memory.calibration.queries == 0 and store.manifest.transforms:
        raise SettingError(
            f"{store.path}: it was made from a store whose settings were not estimated. Tune it (`knnmt tune`), or "
            "index that one (`knnmt index`) and make this one from it again, or give λ and the temperature yourself."
        )
    plain = {each: given[each] for each in ("k", "interpolation_weight", "temperature", "use_counts") if each in given}
    return replace(config, **plain, cache=_cache(memory, given, config.cache))


def _cache(memory: Memory, given: Mapping[str, Any], before: CacheConfig | None) -> CacheConfig | None:
    threshold = given.get("cache", before and before.threshold)
    if threshold is None:
        return None
    if isinstance(threshold, str):
        try:
            number = float(threshold.removesuffix("%"))
        except ValueError:
            number = -1.0
        quantile = threshold.endswith("%")
        check(
            0 <= number <= (100 if quantile else math.inf),
            f"cache must be a distance like 6, or a quantile like '20%' between 0% and 100%, got {threshold!r}",
        )
        if quantile and memory.calibration.queries == 0:
            raise SettingError(
                f"{memory.opened.store.path}: cache {threshold!r} is a part of distances that were not estimated for "
                "this store. Give a distance like 6, let `knnmt tune` find one, or estimate them (`knnmt index`; of a "
                "store made from another, index that one and make this one again)."
            )
        threshold = memory.calibration.nearest_distance(number / 100) if quantile else number
    names = {"cache_scope": "scope", "cache_hits": "store_hits"}
    changed = {names[each]: given[each] for each in names if each in given}
    return replace(before or CacheConfig(threshold), threshold=threshold, **changed)
