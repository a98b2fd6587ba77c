"""The settings of a translation in requests, made from their only descriptions (`translator/settings.py`).

A body of JSON has fields. A query and a form have parameters, whose values are texts and may be repeated. Neither can
give a combiner or a gate that is named by code, because no request may name code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field

from knnmt.protection.placeholder_syntax import MAX_PATTERNS
from knnmt.settings import Description, Settings, Use, described
from knnmt.translator.settings import TranslationSettings

# Kinds of values that are not those of the command line.
_KINDS: dict[str, Any] = {
    "cache": float | str | None,
    "gate": float | None,
    "fast": bool | int | None,
    "profile": str | None,
}


def body_fields(kind: type[Settings], use: Use, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a body for every setting of a kind that a request can give for a use."""
    return {
        name: (_kind(name, each), Field(default=_default(each), **_facts(name, each)))
        for name, each in _offered(kind, use, without).items()
    }


def form_fields(use: Use) -> dict[str, Any]:
    """The fields of a form or a query for the settings that a request can give for a use."""
    return {
        parameter(name, each): (
            _repeated(_kind(name, each), each),
            Field(default=_default(each), **_facts(name, each)),
        )
        for name, each in _offered(TranslationSettings, use).items()
    }


def settings_in_query(use: Use) -> Callable[..., Coroutine[Any, Any, TranslationSettings]]:
    """A dependency of FastAPI that reads the settings of a use from the query of a request."""
    offered = _offered(TranslationSettings, use)
    names = {parameter(name, each): name for name, each in offered.items()}

    async def read(**given: Any) -> TranslationSettings:
        return TranslationSettings(**{names[each]: value for each, value in given.items() if value is not None})

    read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                parameter(name, each),
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[_kind(name, each) | None, Query(**_facts(name, each))],
            )
            for name, each in offered.items()
        ]
    )
    return read


def given_settings(shape: BaseModel, without: Collection[str] = ()) -> TranslationSettings:
    """The settings that a request gives in the fields of its body or its form.

    without: fields that are no settings, although they are called like one
    """
    names = _names()
    given = {names[each]: getattr(shape, each) for each in shape.model_fields_set - {*without} if each in names}
    return TranslationSettings(**given)


@cache
def _names() -> dict[str, str]:
    """The name in Python of every setting, by its names in bodies, queries and forms."""
    known = described(TranslationSettings)
    return {parameter(name, each): name for name, each in known.items()} | {name: name for name in known}


def _offered(kind: type[Settings], use: Use, without: Collection[str] = ()) -> dict[str, Description]:
    return {
        name: each
        for name, each in described(kind).items()
        if "http" in each.interfaces and use in each.uses and name not in without
    }


def parameter(name: str, each: Description) -> str:
    """The name of a setting in a query or a form, where each value of a list has a parameter of its own."""
    return each.option if each.many else name


def _kind(name: str, each: Description) -> Any:
    if each.many:
        return list[str]
    kind = _KINDS.get(name, Literal[each.choices] if each.choices else each.kind)
    return kind if name in _KINDS or each.default is not None else kind | None


def _default(each: Description) -> Any:
    return list(each.default) if each.many else each.default


def _repeated(kind: Any, each: Description) -> Any:
    """A kind that a form can give: a list of one value is that value."""
    as_list = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
    return Annotated[kind, as_list] if each.many else kind


def _facts(name: str, each: Description) -> dict[str, Any]:
    bounds = {"ge": each.least, "le": each.most, "gt": each.above, "lt": each.below}
    facts: dict[str, Any]
    facts = {} if name in ("cache", "fast") else {bound: value for bound, value in bounds.items() if value is not None}
    if each.many:
        facts["max_length"] = MAX_PATTERNS
    elif (name not in _KINDS and each.kind is str and not each.choices) or name == "profile":
        facts["max_length"] = 100
    words = f" By default {each.otherwise}." if each.otherwise else ""
    return {"description": f"{each.help}{words}", **facts}
