from pathlib import Path

import pytest

from knnmt.errors import SettingError
from knnmt.evaluation.systems import System, gather_systems, parse_system
from knnmt.translator.settings import TranslationSettings


def test_the_model_alone_a_store_and_a_store_with_settings() -> None:
    assert parse_system("base") == System("base")
    assert parse_system("plain=base") == System("plain")
    greedy = parse_system("greedy=base,beam=1,placeholder=~~*~~,placeholder=<<*>>")
    assert greedy == System("greedy", settings=TranslationSettings(beam=1, placeholders=("~~*~~", "<<*>>")))
    assert parse_system("x/it.store") == System("it.store", Path("x/it.store"))
    assert parse_system("fast=it.store,exact,cache=20%,lambda=0.5,fading=no") == System(
        "fast", Path("it.store"), True, TranslationSettings(cache="20%", interpolation_weight=0.5, fading=False)
    )
    assert parse_system("it.store,fast=64,fast-any-token=yes").settings == TranslationSettings(
        fast=64, fast_any_token=True
    )
    assert parse_system("it.store,fast=yes").settings == TranslationSettings(fast=True)
    assert parse_system("it.store,k=4") == System("it.store", Path("it.store"), False, TranslationSettings(k=4))


@pytest.mark.parametrize("text", ["base,k=4", "base,exact-matches=use", "base,steps=yes", "", "a="])
def test_what_is_no_system_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_system(text)


@pytest.mark.parametrize("text", ["kk=4", "k=four", "fading=maybe", "fast=x", "beam=wide", "steps=yes"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_system(f"it.store,{text}")


def test_names_must_differ() -> None:
    with pytest.raises(SettingError, match=r"called 'it\.store'"):
        gather_systems([Path("it.store")], ["it.store,cache=6"])


def test_a_store_is_called_as_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "it.store"
    here.mkdir()
    (tmp_path / "newest").symlink_to(here)
    monkeypatch.chdir(here)
    places = [Path(), Path("../newest"), Path("x/odd,k=2"), Path("x/base")]
    expected = ["it.store", "newest", "odd,k=2", "base.store"]
    assert [(each.name, each.datastore) for each in gather_systems(places, [], base=False)] == list(
        zip(expected, places, strict=True)
    )
    assert parse_system(".,k=4").name == "it.store"
    assert parse_system("..").name == tmp_path.name
    assert [each.name for each in gather_systems([Path("base")], [])] == ["base", "base.store"]


def test_the_model_alone_comes_first_under_whatever_name_and_stores_before_descriptions() -> None:
    def names(*described: str, base: bool = True) -> list[str]:
        return [each.name for each in gather_systems([Path("a.store")], described, base)]

    assert names("x=a.store,k=2", "alone=base") == ["alone", "a.store", "x"]
    assert names("x=a.store,k=2") == ["base", "a.store", "x"]
    assert names("x=a.store,k=2", "alone=base", base=False) == ["a.store", "x", "alone"]
    assert gather_systems([], []) == [System("base")]
    assert gather_systems([], [System("own"), "it.store"], base=False)[0] == System("own")
    with pytest.raises(SettingError, match="leaves no system"):
        gather_systems([], [], base=False)


@pytest.mark.parametrize("name", ["a/b", "a\\b", ".hidden", "two\nlines", "long" * 60, "nul\0"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="a system cannot be called"):
        gather_systems([], [f"{name}=it.store"])


def test_a_store_without_a_name_is_refused() -> None:
    with pytest.raises(SettingError, match="a system cannot be called ''"):
        gather_systems([Path("/")], [])
