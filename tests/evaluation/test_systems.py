from pathlib import Path

import pytest

from knnmt.errors import SettingError
from knnmt.evaluation.systems import System, parse_system, parse_systems


def test_the_model_alone_a_store_and_a_store_with_settings() -> None:
    assert parse_system("base") == System("base")
    assert parse_system("plain=base") == System("plain")
    assert parse_system("x/it.store") == System("it.store", Path("x/it.store"))
    assert parse_system("fast=it.store,exact,cache=20%,lambda=0.5,fading=no") == System(
        "fast", Path("it.store"), True, {"cache": "20%", "interpolation_weight": 0.5, "fading": False}
    )
    assert parse_system("it.store,k=4") == System("it.store", Path("it.store"), False, {"k": 4})


@pytest.mark.parametrize("text", ["base,k=4", "it.store,kk=4", "it.store,k=four", "it.store,fading=maybe", "", "a="])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        parse_system(text)


def test_names_must_differ() -> None:
    with pytest.raises(SettingError, match=r"called 'it\.store'"):
        parse_systems(["it.store", "it.store,cache=6"])
