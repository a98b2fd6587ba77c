"""Reads JSON into dataclasses: annotations give the type of each field, and `__post_init__` checks values.

Everything else raises ValueError, with the field, what was expected there and what was found.
"""

from __future__ import annotations

import json
import reprlib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from knnmt.errors import SettingError

Record = TypeVar("Record")
_MAX_DEPTH = 64
_TOO_DEEP = "it is nested too deeply"
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "an object",
    tuple: "a list",
    type(None): "null",
}


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError if it is invalid, or nested more deeply than any record is."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [content]
    for _ in range(_MAX_DEPTH):  # what the parser can bear may still be nested too deeply for others
        level = [each for one in level for each in _within(one)]
        if not level:
            return content
    raise ValueError(_TOO_DEEP)


def as_record(kind: type[Record], content: Any, others: bool = False) -> Record:
    """A dataclass from the content of a JSON object. others: ignore unknown fields; otherwise they are an error"""
    return _record(kind, content, "", others)


def shown(value: Any) -> str:
    """A value for an error message, shortened, without characters that act on a terminal."""
    return reprlib.repr(value)


def _within(content: Any) -> Iterable[Any]:
    if isinstance(content, dict):
        return content.values()
    return content if isinstance(content, list) else ()


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: type) -> list[str]:
    return [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]


@cache
def _form(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """The parts of an annotation, and whether it is a dataclass; a manifest asks for some of them very often."""
    return get_origin(hint), get_args(hint), is_dataclass(hint)


def _record(kind: type[Record], content: Any, place: str, others: bool = False) -> Record:
    if not isinstance(content, dict):
        raise _expected("an object", content, place)
    assert is_dataclass(kind)  # noqa: S101 - which mypy cannot say of a type variable
    hints = _hints(kind)
    required = _required(kind)
    within = f" in {place}" if place else ""
    if missing := [name for name in required if name not in content]:
        raise ValueError(f"lacks {', '.join(missing)}{within}")
    if not others and (unknown := [name for name in content if name not in hints]):
        raise ValueError(f"has the unknown field {shown(unknown[0])}{within}")
    values = {name: as_type(hints[name], content[name], _join(place, name)) for name in hints if name in content}
    try:
        return kind(**values)
    except SettingError as error:
        raise ValueError(f"{place}: {error}" if place else str(error)) from error


def as_type(hint: Any, value: Any, place: str) -> Any:
    """A value of an annotated type from JSON content; `place` names it in errors."""
    origin, arguments, is_record = _form(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, place)
    if origin is Literal:
        if any(type(value) is type(each) and value == each for each in arguments):
            return value
        raise _expected(" or ".join(map(repr, arguments)), value, place)
    if origin is tuple:
        return _tuple(arguments, value, place)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _expected("an object", value, place)
        return {name: as_type(arguments[1], each, _join(place, name)) for name, each in value.items()}
    if is_record:
        made = isinstance(value, hint)  # converted by an earlier reader of a part of the content
        return value if made else _record(hint, value, place)
    return _plain(hint, value, place)


def _plain(hint: Any, value: Any, place: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= 1e308:  # neither infinite nor NaN
            return float(value)
        raise _expected("a finite number", value, place)
    if type(value) is not hint:
        raise _expected(_WORDS[hint], value, place)
    if hint is int and not -(2**63) <= value < 2**63:
        raise _expected("a whole number that fits 64 bits", value, place)
    return value


def _tuple(arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _expected("a list", value, place)
    kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
    if len(kinds) != len(value):
        raise _expected(f"a list of {len(kinds)}", value, place)
    return tuple(as_type(kind, each, f"{place}[{i}]") for i, (kind, each) in enumerate(zip(kinds, value, strict=True)))


def _one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds[:-1]:
        try:
            return as_type(kind, value, place)
        except ValueError:
            continue
    return as_type(kinds[-1], value, place)


def _expected(what: str, found: Any, place: str) -> ValueError:
    return ValueError(f"{place + ': ' if place else ''}expected {what}, found {shown(found)}")


def _join(place: str, name: Any) -> str:
    plain = name if isinstance(name, str) and name.isidentifier() else shown(name)
    return f"{place}.{plain}" if place else plain
