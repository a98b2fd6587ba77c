"""How settings are described: once each, for Python, the command line, HTTP and the texts of systems alike.

A kind of settings is a frozen dataclass that extends `Settings`. The annotation of each field has a `Description`, from
which every interface makes its own form of the setting.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from knnmt.config import RetrievalConfig, check

Group = Literal["text", "decoding", "memory", "retrieval"]
Interface = Literal["command line", "http"]
Use = Literal["texts", "documents", "explain", "evaluate", "bench", "service"]


class NotGiven(Enum):
    """Marks a setting that was not given, where None has a meaning of its own."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN = NotGiven.NOT_GIVEN


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a setting, used wherever one can be given.

    help: for people, without the default
    kind: the type that its text is read as; a bool is two flags on the command line, and yes or no elsewhere
    default: the value that counts if none is given; None if it depends on the model, the machine or the store
    otherwise: what counts if there is no such value, in words
    option: its name on the command line, without dashes; if empty, the name in Python
    metavar: what stands for the value in the help
    least, most: inclusive bounds of a number; above, below: exclusive bounds
    choices: the allowed values
    read: reads a text, if `kind` cannot
    many: the value is a tuple of texts; the option can be repeated
    group: where the help of a command shows it
    interfaces: where it can be given besides Python
    uses: what it can be given for; "service" for the defaults of a service, and for requests in other tools' protocols
    """

    help: str
    kind: type
    default: Any = None
    otherwise: str = ""
    option: str = ""
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str | bool, ...] = ()
    read: Callable[[str], Any] | None = None
    many: bool = False
    group: Group = "retrieval"
    interfaces: tuple[Interface, ...] = ("command line", "http")
    uses: tuple[Use, ...] = ("texts", "documents", "explain", "evaluate", "bench", "service")

    def parse(self, text: str) -> Any:
        """The value that a text stands for. Raises ValueError if it stands for none."""
        if self.many:
            return (text,)
        if self.read is not None:
            return self.read(text)
        return yes_or_no(text) if self.kind is bool else self.kind(text)

    def check(self, name: str, value: Any) -> None:
        """Raise an error for a value of the wrong type or out of bounds."""
        if self.kind in (int, float) and self.read is None:
            number, words = (Integral, "a whole number") if self.kind is int else (Real, "a number")
            sound = isinstance(value, number) and not isinstance(value, bool)
            check(sound, f"{name} must be {words}, got {value!r}")
        if self.choices:
            *others, last = map(repr, self.choices)
            check(value in self.choices, f"{name} must be {', '.join(others)} or {last}, got {value!r}")
        if isinstance(value, str | tuple):  # a name, or a form that other code reads
            return
        bounds = [
            (f"{words} {bound:,}", holds(value, bound))
            for words, bound, holds in (
                ("at least", self.least, operator.ge),
                ("above", self.above, operator.gt),
                ("at most", self.most, operator.le),
                ("below", self.below, operator.lt),
            )
            if bound is not None
        ]
        words = " and ".join(each for each, _ in bounds)
        check(all(holds for _, holds in bounds), f"{name} must be {words}, got {value}")


def yes_or_no(text: str) -> bool:
    """The value of `yes` or `no`."""
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one kind. A setting with the default of its field is not given."""

    def __post_init__(self) -> None:
        of_type: Any = type(self)
        for name, value in self.given().items():
            if value is not None:
                kinds = _kinds(of_type)[name]
                words = " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds))
                made = f"; put an existing {name} into a `Retrieval`" if name in ("gate", "combiner") else ""
                check(isinstance(value, kinds), f"{name} must be {words}, got {value!r}{made}")
                described(type(self))[name].check(name, value)

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default}

    def over(self, others: Settings) -> Self:
        """These settings, completed by the others."""
        return type(self)(**{**others.given(), **self.given()})


Some = TypeVar("Some", bound=Settings)


def described(settings: type[Settings]) -> Mapping[str, Description]:
    """Every setting of a kind by its name in Python."""
    kind: Any = settings  # type checkers do not take a class for a key
    return _descriptions(kind)


@cache
def _descriptions(settings: Any) -> Mapping[str, Description]:
    hints = get_type_hints(settings, include_extras=True)
    return {each.name: hints[each.name].__metadata__[0] for each in fields(settings)}


_WORDS: dict[type, str] = {
    bool: "True or False",
    Integral: "a whole number",
    Real: "a number",
    str: "a text",
    tuple: "a list of texts",
    RetrievalConfig: "a RetrievalConfig",
}


@cache
def _kinds(settings: Any) -> Mapping[str, tuple[type, ...]]:
    """The types that the value of every setting may have, for `isinstance`: numbers of NumPy are numbers."""
    seen = {bool: (bool, Integral), int: (Integral,), float: (Real,)}
    same = {each: (each,) for each in (str, tuple, RetrievalConfig)}
    hints = get_type_hints(settings)
    kinds = {
        name: [{Literal: str, tuple: tuple}.get(get_origin(each), each) for each in get_args(hints[name])]
        for name in described(settings)
    }
    return {
        name: tuple(kind for each in given for kind in (seen | same).get(each, ())) for name, given in kinds.items()
    }


def spelled(settings: type[Settings]) -> Mapping[str, str]:
    """The name in Python of every setting that the command line has, by its name there without dashes."""
    known = described(settings).items()
    return {each.option or name.replace("_", "-"): name for name, each in known if "command line" in each.interfaces}


def parsed(settings: type[Settings], option: str, text: str) -> tuple[str, Any]:
    """The name and the value of a setting written as `option=text`. Raises LookupError or ValueError if it is none."""
    name = spelled(settings)[option]
    return name, described(settings)[name].parse(text)


def settings_of(kind: type[Some], given: Settings | None, **keywords: Any) -> Some:
    """The settings of a call: a whole, keywords, or both. Keywords take precedence.

    A misspelt keyword raises an error; otherwise it would be ignored silently.

    Args:
        given: settings of this kind, or of one that it extends
    """
    sound = given is None or (isinstance(given, Settings) and issubclass(kind, type(given)))
    check(sound, f"settings must be {kind.__name__}, got {given!r}")
    if type(given) is kind and not keywords:
        return given
    known = described(kind)
    for name in keywords:
        check(name in known, f"there is no setting {name!r}; the settings are {', '.join(known)}")
    asked = kind(**keywords)
    return asked if given is None else asked.over(given)
