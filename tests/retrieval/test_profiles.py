"""Profiles: what is written is read again; others stay; damage is said."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.config import CacheConfig, Fading, RetrievalConfig
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.retrieval.profiles import (
    Profile,
    Profiles,
    default_profile,
    names_of_tuning,
    read_profiles,
    write_profiles,
)

POSITIVE = st.floats(1e-3, 1e3)
CONFIGS = st.builds(
    RetrievalConfig,
    k=st.integers(1, 64),
    interpolation_weight=st.floats(0, 0.99),
    temperature=POSITIVE,
    fading=st.none() | st.builds(Fading, POSITIVE, POSITIVE, POSITIVE, POSITIVE),
    use_counts=st.booleans(),
    cache=st.none() | st.builds(CacheConfig, POSITIVE, st.sampled_from(["sentence", "batch"]), st.booleans()),
)
FADING, FIXED = RetrievalConfig(8, 0.7, 30.0, Fading(9.0, 1.0, 8.0, 0.5)), RetrievalConfig(4, 0.5, 20.0)


@given(CONFIGS)
def test_settings_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, config: RetrievalConfig) -> None:
    store = tmp_path_factory.mktemp("store")
    write_profiles(store, {"knn": Profile(config, "likelihood", 500, 2.25)})
    assert read_profiles(store) == {"knn": Profile(config, "likelihood", 500, 2.25)}


def test_profiles_are_added_replaced_removed_and_chosen(tmp_path: Path) -> None:
    write_settings(tmp_path, other={"kept": True})
    assert Profiles.of(tmp_path).chosen(None) is None
    write_profiles(tmp_path, {"a": Profile(FADING, "likelihood", 9, 2.0), "b": Profile(FIXED, "bleu", 9, 2.0)})
    assert default_profile(tmp_path) is None
    assert Profiles.of(tmp_path).chosen(None) is None
    assert Profiles.of(tmp_path).chosen("b") == FIXED
    write_profiles(tmp_path, {"a": Profile(FIXED, "bleu", 9, 2.0)}, default="a")
    assert Profiles.of(tmp_path).chosen(None) == FIXED
    assert Profiles.of(tmp_path).chosen("estimated") is None
    write_profiles(tmp_path, {"b": None, "c": None})
    assert set(read_profiles(tmp_path)) == {"a"}
    assert default_profile(tmp_path) == "a"
    assert read_settings(tmp_path)["other"] == {"kept": True}


@pytest.mark.parametrize("name", ["", "  ", "estimated"])
def test_names_that_mean_something_else_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="cannot be called"):
        write_profiles(tmp_path, {name: Profile(FIXED, "bleu", 9, 2.0)})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("config", "k"), "8"),
        (("config", "k"), 8.5),
        (("config", "temperature"), -1),
        (("config", "interpolation_weight"), None),
        (("config", "fading"), 3),
        (("config", "fading"), {"scale": 1}),
        (("config", "cache"), {"tau": 6}),
        (("config", "kk"), 8),
        (("config",), "fast"),
        (("author",), "me"),
        (("pairs",), "many"),
    ],
)
def test_a_damaged_profile_is_said(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    write_profiles(tmp_path, {"knn": Profile(FADING, "likelihood", 9, 2.0)}, default="knn")
    section = read_settings(tmp_path)["profiles"]
    inner = section["knn"]
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    write_settings(tmp_path, profiles=section)
    with pytest.raises(DatastoreDamagedError, match=r"profile 'knn' .*knnmt tune .* writes it again"):
        Profiles.of(tmp_path).chosen(None)


@pytest.mark.parametrize("section", [[], "x", {"knn": None}, {"knn": []}, {"knn": {"config": {}}}])
def test_something_else_in_their_place_is_refused(tmp_path: Path, section: Any) -> None:
    write_settings(tmp_path, profiles=section)
    with pytest.raises(DatastoreDamagedError, match="profile"):
        read_profiles(tmp_path)


def test_profiles_that_are_none_at_all_are_not_called_one_profile(tmp_path: Path) -> None:
    write_settings(tmp_path, profiles=[])
    with pytest.raises(DatastoreDamagedError, match=r"its profiles cannot be read.*found list") as error:
        read_profiles(tmp_path)
    assert "--profile" not in str(error.value)
    write_profiles(tmp_path, {"knn": Profile(FIXED, "bleu", 9, None)})
    assert read_profiles(tmp_path) == {"knn": Profile(FIXED, "bleu", 9, None)}


@pytest.mark.parametrize("default", [3, ["knn"], {"knn": 1}])
def test_a_default_that_is_no_name_is_said_and_written_anew(tmp_path: Path, default: Any) -> None:
    write_profiles(tmp_path, {"knn": Profile(FIXED, "bleu", 9, 2.0)})
    write_settings(tmp_path, default_profile=default)
    for ask in (lambda: Profiles.of(tmp_path).chosen(None), lambda: default_profile(tmp_path)):
        with pytest.raises(DatastoreDamagedError, match="default_profile must be the name of a profile, found"):
            ask()
    assert Profiles.of(tmp_path).chosen("knn") == FIXED
    assert Profiles.of(tmp_path).chosen("estimated") is None
    write_profiles(tmp_path, {"a": Profile(FADING, "bleu", 9, 2.0)})
    assert default_profile(tmp_path) is None


def test_tunings_of_different_names_never_write_the_same_profile() -> None:
    assert names_of_tuning("knn") == ("knn", "knn-fixed", "cache")
    assert names_of_tuning("law") == ("law", "law-fixed", "law-cache")
    for name in ("cache", "knn-fixed", "knn-cache", "law-fixed", "law-cache"):
        with pytest.raises(SettingError, match=f"a profile of tuning cannot be called '{name}'"):
            names_of_tuning(name)
    with pytest.raises(SettingError, match="cannot be called 'estimated'"):
        names_of_tuning("estimated")


def test_the_advice_for_a_damaged_profile_can_be_followed(tmp_path: Path) -> None:
    write_settings(tmp_path, profiles={name: {} for name in (*names_of_tuning("knn"), *names_of_tuning("law"))})
    for tuning in ("knn", "law"):
        for name in names_of_tuning(tuning):
            with pytest.raises(DatastoreDamagedError, match=f"--profile {tuning}`"):
                Profiles.of(tmp_path).profile(name)


def test_commands_that_errors_advise_can_be_pasted(tmp_path: Path) -> None:
    place = tmp_path / "it's a store"
    place.mkdir()
    write_settings(place, profiles={"my own": {"config": 1}})
    with pytest.raises(DatastoreDamagedError) as caught:
        Profiles.of(place).profile("my own")
    (advice,) = re.findall("`(.*)`", str(caught.value))
    assert shlex.split(advice) == ["knnmt", "tune", str(place), "--dev", "DEV", "--profile", "my own"]
