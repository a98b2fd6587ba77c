"""The stores that a translator has open, and the settings that a call retrieves with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypedDict

from knnmt.compression.pca import KeyProjection
from knnmt.config import CacheConfig, FastConfig, OpenStores, RetrievalConfig, check
from knnmt.datastore.manifest import Manifest, read_manifest
from knnmt.datastore.settings import settings_changed
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine, State
from knnmt.engine.checkpoint import NamedByStore, find_checkpoint, fingerprint
from knnmt.engine.shipped import DEFAULT_MODEL
from knnmt.errors import ModelNotFoundError, SettingError, SlowSearchWarning
from knnmt.fitting.calibration import DEFAULT_K, Calibration, calibrate
from knnmt.fitting.held_out import sample
from knnmt.fitting.index_choice import memory_of_machine
from knnmt.fitting.probes import choose_probes
from knnmt.retrieval.fast import UNTUNED
from knnmt.retrieval.gate import ThresholdGate, TrainedGate, gate_changed
from knnmt.retrieval.matches import SourceMatcher
from knnmt.retrieval.open_store import OpenStore, require_for_fast
from knnmt.retrieval.profiles import FAST, Profiles
from knnmt.retrieval.retriever import Retrieval

THE_CALLS_STORE = "\0"  # no path can be that, so that a store may have any name
_RETRIEVALS = 1024  # ways to retrieve that are remembered: texts may each come with settings of their own
_FEW_SENTENCES = 50  # asked by a store that nothing was estimated for, whenever it is opened
_PLAIN = ("k", "interpolation_weight", "temperature", "use_counts", "forms")  # what configurations call the same
Store = str | Path | Datastore
_said: set[object] = set()  # what was warned of in this process


def languages_of(store: Store) -> tuple[str, str]:
    """The languages that a store was built for."""
    manifest = _manifest_of(store)
    return manifest.source_language, manifest.target_language


def model_of(store: Store | None) -> str:
    """The model that a store was built with, by its name if it is here; it may be a copy of the shipped one."""
    if store is None:
        return DEFAULT_MODEL
    manifest = _manifest_of(store)
    name = NamedByStore(manifest.model_name)
    try:
        find_checkpoint(name)
    except ModelNotFoundError:
        if fingerprint(find_checkpoint(DEFAULT_MODEL)) == manifest.fingerprint:
            return DEFAULT_MODEL
        raise
    return name


def _manifest_of(store: Store) -> Manifest:
    return store.manifest if isinstance(store, Datastore) else read_manifest(Path(store))


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
    gate: α; the store's gate (`knnmt train-gate`) predicts λ, and steps where that is at most α are not searched; it
        brings the k and T that it was trained for; None for no gate
    profile: the name of settings saved with the store, or whole settings; "estimated" passes over what was tuned
    fast: Fast kNN-MT with the c nearest occurrences of each source token; True for as many as its settings say. What is
        not given is as in the store's profile "fast", else what usually serves Fast kNN-MT; λ is fixed unless tuned
    fast_any_token: with that, the nearest of all tokens' occurrences
    forms: False gives the model every text as it is, also where the memory holds it with another final mark or other
        capitals
    """

    k: int | None
    interpolation_weight: float | None
    temperature: float | None
    fading: bool | None
    cache: float | str | None
    cache_scope: Literal["sentence", "batch"]
    cache_hits: bool
    use_counts: bool
    gate: float | None
    profile: str | RetrievalConfig | None
    fast: bool | int | None
    fast_any_token: bool
    forms: bool


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
    gate: read when a call first asks for it; gate_changed: when it was written
    judged: whether somebody was warned where its search is slow
    """

    opened: OpenStore
    calibration: Calibration
    profiles: Profiles
    matcher: SourceMatcher
    settings_changed: int
    gate: TrainedGate | None = None
    gate_changed: int = 0
    judged: bool = False

    @property
    def size(self) -> int:
        """Bytes of the store's files, which is about what it takes in memory when all of it is used."""
        return sum(stored.bytes for stored in self.opened.store.manifest.files())


class Memories:
    """The open stores of one model, by their places, those used last at the end. Threads may share them.

    A store that is closed lives on with the batches that use it, and its memory is given back after the last of them.
    """

    def __init__(self, engine: Engine[State], exact: bool = False, limits: OpenStores | None = None) -> None:
        self._engine: Engine[Any] = engine
        self._exact = exact
        limits = limits or OpenStores()
        self._most = limits.count
        self._most_bytes = memory_of_machine() if limits.size is None else limits.size
        self._changing = RLock()
        self._open: dict[Path, Memory] = {}
        self._retrievals: dict[tuple[Path, RetrievalConfig], Retrieval] = {}

    def open(self, datastore: Store) -> Memory:
        """Open a store, or find it open; its settings are those that stand there now."""
        path = _place(datastore)
        with self._changing:
            memory = self._open.pop(path, None)
            if memory is None:
                store = Datastore.open(path, self._engine)
                opened = OpenStore(store, self._engine.device, self._exact, choose_probes)
                changed = settings_changed(path)
                calibration = self._calibration(opened)
                memory = Memory(opened, calibration, Profiles.of(path), SourceMatcher(store), changed)
            self._open[path] = memory
            self._read_settings(memory)  # a call may name a profile that was made since
            return memory

    def close(self, datastore: Store) -> None:
        """Forget a store that is open; its memory is given back."""
        path = _place(datastore)
        with self._changing:
            self._open.pop(path, None)
            self._retrievals = {key: value for key, value in self._retrievals.items() if key[0] != path}

    def close_all(self) -> None:
        """Forget every store."""
        with self._changing:
            self._open, self._retrievals = {}, {}

    def refresh(self, datastores: Iterable[Store]) -> None:
        """Move those of these stores that are open to their newest generation, index and settings.

        Then some of the others are closed, where too many are open.
        """
        places = {_place(each) for each in datastores}
        with self._changing:
            for path in self._open.keys() & places:
                self._refresh(self._open[path])
            self._close_some(places)

    def _close_some(self, needed: set[Path]) -> None:
        """Close what was not used for longest until the limits hold, or all that is open is needed now."""
        sizes = {path: memory.size for path, memory in self._open.items()}
        coming = len(needed - sizes.keys())
        for path in list(sizes):
            if len(sizes) + coming <= self._most and sum(sizes.values()) <= self._most_bytes:
                return
            if path not in needed:
                self.close(path)
                del sizes[path]

    def _refresh(self, memory: Memory) -> None:
        path = memory.opened.store.path
        grown = memory.opened.refresh()
        memory.judged &= not grown
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
        with self._changing:
            memory = self.open(datastore)
            config = resolve(memory, settings)
            if config.fast is None and not memory.judged:
                memory.judged = True
                warn_if_slow(memory.opened)
            path, alpha = memory.opened.store.path, config.gate
            gate = None
            if alpha is not None:
                trained = self._gate(memory)
                config = trained.applied_to(config, _asked(settings))
                gate = ThresholdGate(trained, alpha)
            while len(self._retrievals) >= _RETRIEVALS:
                del self._retrievals[next(iter(self._retrievals))]
            return self._retrievals.setdefault((path, config), Retrieval(memory.opened, config, gate))

    def _gate(self, memory: Memory) -> TrainedGate:
        """The gate of a store, read again if it was trained since."""
        path = memory.opened.store.path
        changed = gate_changed(path)
        if memory.gate is None or changed != memory.gate_changed:
            self._take_gate(memory, TrainedGate.read(memory.opened.store, self._engine.device))
            memory.gate_changed = changed
        assert memory.gate is not None  # noqa: S101 - taken just now
        return memory.gate

    def _take_gate(self, memory: Memory, gate: TrainedGate) -> None:
        """Use this gate from the next batch on; those under way go on with the one before."""
        memory.gate, path = gate, memory.opened.store.path
        self._retrievals = {key: each for key, each in self._retrievals.items() if key[0] != path or not each.gate}

    def _calibration(self, opened: OpenStore) -> Calibration:
        known = Calibration.of(opened.store.path)
        if known is not None:
            return known
        if KeyProjection.of(opened.store) is not None:
            return Calibration.unknown()  # an estimate needs the model's states, which its keys are not any more
        held_out = sample(opened.index.entries, _FEW_SENTENCES)
        estimated = calibrate(held_out, held_out.search(opened.index, DEFAULT_K), self._engine)
        return estimated or Calibration.unknown()


def warn_if_slow(opened: OpenStore, place: Path | None = None) -> None:
    """Warn of a search that could be much faster, and say how: once a process of a store, once of a missing package.

    place: where the store will be, if it is still being made
    """
    place = place or opened.store.path
    index = opened.index.snapshot
    about = "faiss" if index.lacks_faiss else place
    if about not in _said and (hint := index.hint_for(place)):
        _said.add(about)
        warnings.warn(f"{place}: {hint}", SlowSearchWarning, stacklevel=3)


def _place(datastore: Store) -> Path:
    return (datastore.path if isinstance(datastore, Datastore) else Path(datastore)).resolve()


def check_names(settings: Iterable[str]) -> None:
    """Refuse settings that there are not: a misspelt one would be passed over in silence."""
    known = RetrievalSettings.__annotations__
    for name in settings:
        check(name in known, f"no setting is called {name!r}; those of retrieval are {', '.join(known)}")


def resolve(memory: Memory, settings: Mapping[str, Any]) -> RetrievalConfig:
    """The settings of a call: those given, else the profile's, else those estimated for the store."""
    given = {name: value for name, value in settings.items() if value is not None or name in ("cache", "gate")}
    store = memory.opened.store
    profile = given.pop("profile", None)
    if profile is None and given.get("fast"):
        profile = FAST if FAST in memory.profiles.names() else UNTUNED
    start = profile if isinstance(profile, RetrievalConfig) else memory.profiles.chosen(profile)
    if (start is not None and start.fast is not None) or given.get("fast"):
        return _fast(memory, given, start)
    check("fast_any_token" not in given, "fast_any_token is for Fast kNN-MT: give fast, too")
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
    plain = {each: given[each] for each in _PLAIN if each in given}
    gate = given.get("gate", config.gate)
    return replace(config, **plain, cache=_cache(memory, given, config.cache), gate=gate)


def _asked(settings: Mapping[str, Any]) -> set[str]:
    """The settings that a call names itself; a profile names all of them."""
    named = {name for name, value in settings.items() if value is not None}
    return named | set(RetrievalConfig.__dataclass_fields__) if "profile" in named else named


def _fast(memory: Memory, given: Mapping[str, Any], start: RetrievalConfig | None) -> RetrievalConfig:
    """The settings of a call with Fast kNN-MT: its distances are others, so that nothing estimated fits them."""
    store = memory.opened.store
    require_for_fast(store)
    wanted = given.get("fast", True)
    if start is None or start.fast is None or not wanted:
        raise SettingError(
            f"{store.path}: the profile and fast={wanted} do not go together, for λ and T of Fast kNN-MT are of "
            "another distance; name another profile, or none"
        )
    fading = given.get("fading", start.fading is not None and "interpolation_weight" not in given)
    check(not fading or start.fading is not None, "how λ fades with fast is to be tuned: `knnmt tune STORE --fast`")
    check(
        fading or start.fading is None or "interpolation_weight" in given,
        "fast without fading needs an interpolation_weight, or the profile of a fixed one (fast-fixed)",
    )
    check(given.get("cache") is None, "fast searches a small store of each sentence, which no cache is for; give one")
    candidates = start.fast.candidates if wanted is True else wanted
    fast = FastConfig(candidates, given.get("fast_any_token", start.fast.any_token))
    plain = {each: given[each] for each in (*_PLAIN, "gate") if each in given}
    return replace(start, **plain, fading=start.fading if fading else None, fast=fast)


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
