"""JSON becomes a dataclass of the types it is annotated with, or an error that says where it does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from knnmt.config import check
from knnmt.records import as_record, as_type, parse_json, shown


@dataclass(frozen=True, slots=True)
class Part:
    count: int

    def __post_init__(self) -> None:
        check(self.count >= 0, f"count cannot be {self.count}")


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    share: float
    part: Part
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] = (0, "")
    flag: bool = False
    mode: Literal["a", "b"] = "a"
    perhaps: Part | None = None
    several: bool | Literal["never"] = False
    figures: dict[str, float] = field(default_factory=dict)
    named: Mapping[str, Part] = field(default_factory=dict)
    anything: Any = None


SOUND: dict[str, Any] = {"name": "n", "share": 1, "part": {"count": 2}}


def test_what_fits_is_read() -> None:
    content = {
        **SOUND,
        "parts": [{"count": 1}, {"count": 3}],
        "pair": [4, "x"],
        "flag": True,
        "mode": "b",
        "perhaps": {"count": 0},
        "several": "never",
        "figures": {"a": 1, "b": 0.5},
        "named": {"p": {"count": 9}},
        "anything": [None],
    }
    found = as_record(Whole, content)
    assert found == Whole(
        "n", 1.0, Part(2), (Part(1), Part(3)), (4, "x"), True, "b", Part(0), "never", {"a": 1.0, "b": 0.5},
        {"p": Part(9)}, [None],
    )  # fmt: skip
    assert type(found.share) is float
    assert as_record(Whole, SOUND) == Whole("n", 1.0, Part(2))
    assert as_record(Whole, {**SOUND, "more": 1, "perhaps": None}, others=True) == Whole("n", 1.0, Part(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name: expected text, found 3"),
        ({"share": "1"}, "share: expected a number, found '1'"),
        ({"share": True}, "share: expected a number, found True"),
        ({"share": float("nan")}, "share: expected a finite number, found nan"),
        ({"share": float("-inf")}, "share: expected a finite number, found -inf"),
        ({"share": 10**400}, "share: expected a finite number"),
        ({"part": {"count": 1.0}}, r"part\.count: expected a whole number, found 1\.0"),
        ({"part": {"count": True}}, r"part\.count: expected a whole number, found True"),
        ({"part": {"count": 2**63}}, r"part\.count: expected a whole number that fits 64 bits"),
        ({"part": {"count": -1}}, "part: count cannot be -1"),
        ({"part": {}}, "lacks count in part"),
        ({"part": []}, r"part: expected an object, found \[\]"),
        ({"parts": {}}, "parts: expected a list, found {}"),
        ({"parts": [{"count": 1}, {"count": None}]}, r"parts\[1\]\.count: expected a whole number, found None"),
        ({"parts": [{"count": -1}]}, r"parts\[0\]: count cannot be -1"),
        ({"pair": [1]}, r"pair: expected a list of 2, found \[1\]"),
        ({"pair": [1, 2]}, r"pair\[1\]: expected text, found 2"),
        ({"flag": 1}, "flag: expected true or false, found 1"),
        ({"mode": "c"}, "mode: expected 'a' or 'b', found 'c'"),
        ({"mode": ["a"]}, "mode: expected 'a' or 'b'"),
        ({"perhaps": 0}, "perhaps: expected an object, found 0"),
        ({"several": 1}, "several: expected 'never', found 1"),
        ({"figures": {"a b": None}}, r"figures\.'a b': expected a number, found None"),
        ({"figures": []}, "figures: expected an object"),
        ({"more": 1}, "has the unknown field 'more'"),
        ({"\x1b[31m": 1}, r"unknown field '\\x1b\[31m'"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_record(Whole, {**SOUND, **changes})


def test_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match="lacks name, part"):
        as_record(Whole, {"share": 1})
    with pytest.raises(ValueError, match="expected an object, found 'x'"):
        as_record(Whole, "x")
    with pytest.raises(ValueError, match="it: expected text, found None"):
        as_type(str, None, "it")


@pytest.mark.parametrize("depth", [65, 900, 1_000_000])
def test_deep_nesting_is_an_error_and_no_crash(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(text)
    assert parse_json("[" * 64 + "]" * 64)


def test_what_is_shown_is_short() -> None:
    assert len(shown("x" * 10_000)) < 100
    assert len(shown({str(number): [number] * 1000 for number in range(1000)})) < 1000
