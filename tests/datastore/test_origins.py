"""What of a store somebody means by an origin."""

from __future__ import annotations

import pytest

from knnmt.datastore.origins import close_origins, origin_test

UNIT = "/daten/kunde/memory.tsv#12"


@pytest.mark.parametrize(
    "asked",
    [
        UNIT,
        "/daten/kunde/memory.tsv",
        "memory.tsv",
        "memory.tsv#12",
        "kunde/memory.tsv",
        "kunde/memory.tsv#12",
        "*.tsv",
        "mem*#1*",
        "/daten/*",
        "*",
    ],
)
def test_an_origin_is_meant(asked: str) -> None:
    assert origin_test(asked)(UNIT)


@pytest.mark.parametrize(
    "asked",
    ["emory.tsv", "memory", "memory.tsv#1", "memory.tsv#120", "unde/memory.tsv", "daten", "#12", "12", "*.tmx", ""],
)
def test_an_origin_is_not_meant(asked: str) -> None:
    assert not origin_test(asked)(UNIT)


def test_only_an_asterisk_is_a_pattern() -> None:
    assert origin_test("katalog.po#12[0]")("katalog.po#12[0]")  # a plural form
    assert not origin_test("katalog.po#12[0]")("katalog.po#120")
    assert not origin_test("katalog.po#1?")("katalog.po#12")
    assert origin_test("own.tsv")(r"C:\daten\own.tsv#3")
    assert origin_test("own")("own")


def test_what_is_close_to_an_origin() -> None:
    origins = [f"/daten/kunde/memory.tsv#{n}" for n in range(30)] + ["glossar.tmx#tu1"]
    assert close_origins("memmory.tsv", origins)[0] == "memory.tsv"
    assert close_origins("glosar.tmx", origins) == ["glossar.tmx"]
    assert close_origins("glossar.tmx#tu2", origins) == ["glossar.tmx#tu1"]
    assert close_origins("etwas ganz anderes", origins) == []
