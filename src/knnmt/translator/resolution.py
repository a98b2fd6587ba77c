"""From the settings of a call to complete settings: those given, or the profile's, or those estimated for the store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from knnmt.calibration.estimates import Estimates
from knnmt.config import DEFAULT_SEGMENTS, CacheConfig, FastConfig, RetrievalConfig, check
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.retrieval.open_store import require_for_fast
from knnmt.retrieval.profiles import FAST, Profiles
from knnmt.retrieval.sentence_stores import UNTUNED_FAST
from knnmt.retrieval.settings import RetrievalSettings

_SAME = ("k", "interpolation_weight", "temperature", "forms")  # named so in complete settings


@dataclass(frozen=True, slots=True)
class StoresOwn:
    """What is known about a store's settings: estimates, and saved profiles."""

    datastore: Datastore
    estimates: Estimates
    profiles: Profiles


def resolve(settings: RetrievalSettings, own: StoresOwn) -> RetrievalConfig:
    """The complete settings of a call."""
    given = _given(settings)
    profile = given.pop("profile", None)
    if profile is None and given.get("fast"):
        profile = FAST if FAST in own.profiles.names() else UNTUNED_FAST
    start = profile if isinstance(profile, RetrievalConfig) else own.profiles.chosen(profile)
    search = _requested_search(given, profile is None and (start is None or start.segments is not None))
    if profile is None and search is not None:
        start = own.profiles.of_search(search == "segments")
    if (start is not None and start.fast is not None) or given.get("fast"):
        return _fast(own.datastore, given, start)
    check("fast_any_token" not in given, "fast_any_token needs Fast kNN-MT: also give fast")
    segments = _segments(given, start, search, own)
    fades = start is None or start.fading is not None
    fading = given.get("fading", fades and "interpolation_weight" not in given)
    if start is not None and fading == fades:
        config, needed = start, False
    else:
        calibration = own.estimates.whole if segments is None else own.estimates.by_segment
        estimated = calibration.config(fading)
        if start is None:
            config = estimated
            needed = fading or not {"interpolation_weight", "temperature"} <= given.keys()
        else:  # λ of the other kind
            config = replace(start, interpolation_weight=estimated.interpolation_weight, fading=estimated.fading)
            needed = fading or "interpolation_weight" not in given
        needed = needed and calibration.queries == 0
    if needed and own.datastore.manifest.transforms:
        if segments is not None:
            raise SettingError(
                f"{own.datastore.path}: this store was made from one whose settings were not estimated. Tune it "
                f"(`knnmt tune STORE --dev DEV`); or index the original (`knnmt index`) and make this store from it "
                f"again; or give λ and the temperature yourself."
            )
        raise SettingError(
            f"{own.datastore.path}: this store was made from one whose settings were not estimated for search of the "
            f"whole store. Tune it (`knnmt tune STORE --dev DEV --whole`); or index the original (`knnmt index`) and "
            f"make this store from it again; or give λ and the temperature yourself."
        )
    same = {each: given[each] for each in _SAME if each in given}
    gate = given.get("gate", config.gate)
    return replace(config, **same, cache=_cache(own, given, config.cache), gate=gate, segments=segments)


def named_by(settings: RetrievalSettings) -> set[str]:
    """The settings that a call itself names; a profile names all of them."""
    named = {name for name, value in settings.given().items() if value is not None}
    return named | set(RetrievalConfig.__dataclass_fields__) if "profile" in named else named


def _given(settings: RetrievalSettings) -> dict[str, Any]:
    """The given part of complete settings, with the number of candidates, if any, as `fast`.

    Custom parts are not included: a profile never names code.
    """
    given = {name: value for name, value in settings.given().items() if name != "combiner"}
    if isinstance(given.get("gate"), str):
        given["gate"] = None
    candidates, fast = given.pop("fast_candidates", None), given.get("fast", True)
    if candidates is None:
        return given
    agrees = fast is True or (fast == candidates and fast is not False)
    check(agrees, f"fast={fast} and fast_candidates={candidates} do not go together: give one of them")
    return {**given, "fast": candidates}


def _fast(datastore: Datastore, given: Mapping[str, Any], start: RetrievalConfig | None) -> RetrievalConfig:
    """The settings of a call with Fast kNN-MT. Its distances differ, so no estimates fit them."""
    require_for_fast(datastore)
    wanted = given.get("fast", True)
    if start is None or start.fast is None or not wanted:
        raise SettingError(
            f"{datastore.path}: the profile and fast={wanted} exclude each other, because λ and T of Fast kNN-MT "
            "are for another distance; name another profile, or none"
        )
    fading = given.get("fading", start.fading is not None and "interpolation_weight" not in given)
    check(not fading or start.fading is not None, "a fading λ with fast must be tuned: `knnmt tune STORE --fast`")
    check(
        fading or start.fading is None or "interpolation_weight" in given,
        "fast without fading needs an interpolation_weight, or the profile of a fixed one (fast-fixed)",
    )
    check(
        given.get("cache") is None,
        "fast and cache exclude each other, because fast does not search the whole store; give one of them",
    )
    candidates = start.fast.candidates if wanted is True else wanted
    fast = FastConfig(candidates, given.get("fast_any_token", start.fast.any_token))
    same = {each: given[each] for each in (*_SAME, "gate") if each in given}
    return replace(start, **same, fading=start.fading if fading else None, fast=fast)


def _requested_search(given: Mapping[str, Any], may_change: bool) -> str | None:
    """The search that a call asks for, "whole" or "segments", or None.

    may_change: a cache or a gate also asks for whole search
    """
    search, segments = given.get("search"), given.get("segments")
    check(search != "whole" or segments is None, f"search whole and segments {segments} do not go together: give one")
    if search is not None or segments is not None:
        return search or "segments"
    whole = given.get("cache") is not None or given.get("gate") is not None
    return "whole" if whole and may_change else None


def _segments(
    given: Mapping[str, Any], start: RetrievalConfig | None, search: str | None, own: StoresOwn
) -> int | None:
    """How many segments each sentence is searched in; None for the whole store."""
    if search == "whole":
        return None
    if (number := given.get("segments")) is not None:
        return int(number)
    if start is None:
        return own.estimates.by_segment.segments
    return start.segments or (DEFAULT_SEGMENTS if search == "segments" else None)


def _cache(own: StoresOwn, given: Mapping[str, Any], before: CacheConfig | None) -> CacheConfig | None:
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
        if quantile and own.estimates.whole.queries == 0:
            raise SettingError(
                f"{own.datastore.path}: cache {threshold!r} is a quantile of distances that were not estimated for "
                f"this store. Give a distance like 6, let `knnmt tune` find one, or estimate them (`knnmt index`; for "
                f"a store made from another, index the original and make this store again)."
            )
        threshold = own.estimates.whole.nearest_distance(number / 100) if quantile else number
    return replace(before or CacheConfig(threshold), threshold=threshold)
