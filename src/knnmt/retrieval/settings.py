"""The vocabulary of retrieval: everything that a call can ask for, each setting described once.

The command line's options, the settings of `--system`, the keywords of `Translator` and the checks of names are all
made from the fields of `RetrievalSettings`. They are resolved into a `RetrievalConfig`, which a store's profile keeps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypedDict, Unpack, get_args, get_origin, get_type_hints

from knnmt.config import DEFAULT_SEGMENTS, MAX_NEIGHBOURS, MAX_SEGMENTS, RetrievalConfig, check

TRAINED_COMBINERS = ("robust", "robust-fading")  # those of knnmt itself
"""Combiners that a store may have, by the names of their methods (`knnmt.retrieval.trained`)."""


class NotGiven(Enum):
    """Marks a setting that was not given, where None has a meaning of its own."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN = NotGiven.NOT_GIVEN


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a setting, used wherever one can be given.

    help: for people, with the default
    kind: the type that its text is read as; a bool is two flags on the command line, and yes or no elsewhere
    option: its name on the command line, without dashes; if empty, the name in Python
    metavar: what stands for the value in the help
    least, most: inclusive bounds of a number; above, below: exclusive bounds
    choices: the allowed texts
    read: reads a text, if `kind` cannot
    """

    help: str
    kind: type
    option: str = ""
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None

    def parse(self, text: str) -> Any:
        """The value that a text stands for. Raises ValueError if it stands for none."""
        if self.read is not None:
            return self.read(text)
        return _yes_or_no(text) if self.kind is bool else self.kind(text)

    def check(self, name: str, value: Any) -> None:
        """Raise an error for a value of the wrong type or out of bounds."""
        if self.kind in (int, float) and self.read is None:
            number, words = (Integral, "a whole number") if self.kind is int else (Real, "a number")
            sound = isinstance(value, number) and not isinstance(value, bool)
            check(sound, f"{name} must be {words}, got {value!r}")
        if self.choices:
            choices = " or ".join(map(repr, self.choices))
            check(value in self.choices, f"{name} must be {choices}, got {value!r}")
        if isinstance(value, str):  # a name, or a form that other code reads
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


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


def _number_or_yes(text: str) -> bool | int:
    return int(text) if text.isdecimal() else _yes_or_no(text)


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """How a call retrieves. A setting that is not given comes from the store's profile, or from its estimate.

    A setting with its default is not given. The default is None, except for `cache` and `gate`, where None means none.

    k: neighbours per step
    interpolation_weight: a fixed λ; if not given, λ fades where the memory has nothing similar
    temperature: T, by which distances are divided; a higher T gives far neighbours more weight
    fading: False keeps λ fixed at the profile's value
    cache: τ as a number, or as a quantile of the distances between new states and the store ("20%"); None for no cache
    gate: α; the store's gate (`knnmt train-gate`) predicts λ, and steps whose λ is at most α are not searched; k and T
        are those that the gate was trained for; or the name of your own gate, "package.module:Name"; None for no gate
    combiner: the store's trained combiner of a method (`knnmt train-combiner`): "robust",
        "robust-fading" or one of another package; k, T and the search are those that it was trained for; or the name of
        your own combiner,
        "package.module:Name"
    forms: False gives the model every text as it is, even if the memory holds it with another final mark or other
        capitals
    profile: the name of settings saved with the store, or complete settings; "estimated" ignores what was tuned
    search: "whole", or "segments": search each sentence among the entries of the segments that cover its source best
    segments: the same with this many segments
    fast: Fast kNN-MT; a number is short for `fast_candidates`. Other settings come from the store's profile "fast", or
        are the usual ones of Fast kNN-MT; λ is fixed unless tuned
    fast_candidates: Fast kNN-MT with the c nearest occurrences of each source token
    fast_any_token: compare the occurrences of all tokens
    """

    k: Annotated[
        int | None, Description("Neighbours per step.  [default: the store's]", int, least=1, most=MAX_NEIGHBOURS)
    ] = None
    interpolation_weight: Annotated[
        float | None,
        Description(
            "A fixed weight of the memory, at least 0 and below 1.  [default: a weight that depends on the distance "
            "of the nearest entries, and fades if the memory has nothing similar]",
            float,
            option="lambda",
            least=0,
            below=1,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Description(
            "How evenly neighbours share the weight. A higher value gives far neighbours more.  [default: the store's]",
            float,
            above=0,
        ),
    ] = None
    fading: Annotated[bool | None, Description("Let the weight of the memory fade with the distance.", bool)] = None
    cache: Annotated[
        float | str | NotGiven | None,
        Description(
            "Reuse an earlier step's retrieval if the state is within this distance: a number, or a quantile of the "
            "distances between new text and the store (20%).",
            str,
            metavar="T",
        ),
    ] = NOT_GIVEN
    gate: Annotated[
        float | str | NotGiven | None,
        Description(
            "Search only the steps for which the store's gate (see knnmt train-gate) predicts a weight of the "
            "memory above this value, and use that weight; 0 searches all steps, 0.5 some. Or the name of your own "
            "gate: package.module:Name.",
            str,
            metavar="ALPHA",
            least=0,
            below=1,
            read=_number_or_name,
        ),
    ] = NOT_GIVEN
    combiner: Annotated[
        str | None,
        Description(
            "Weigh neighbours by the store's trained combiner (see knnmt train-combiner): "
            f"{', '.join(TRAINED_COMBINERS)} or another method. Or by your own combiner: package.module:Name.",
            str,
            metavar="NAME",
        ),
    ] = None
    forms: Annotated[
        bool | None,
        Description(
            "Give the model a line as the memory holds it, if they differ only in a final mark, capitals, white "
            "space or an accelerator.  [default: forms]",
            bool,
        ),
    ] = None
    profile: Annotated[
        str | RetrievalConfig | None,
        Description(
            "The name of settings saved with the store (see knnmt tune); estimated: those estimated from the store "
            "alone.  [default: the store's]",
            str,
        ),
    ] = None
    search: Annotated[
        Literal["whole", "segments"] | None,
        Description(
            "whole: search all entries of the store, by its index. segments: search only the segments that cover a "
            "source best, exactly; the cost does not grow with the store.  [default: the profile's; without one, "
            "segments for a store of at least 100,000 segments that has no index]",
            str,
            choices=("whole", "segments"),
        ),
    ] = None
    segments: Annotated[
        int | None,
        Description(
            f"Search this many segments for each sentence.  [default: the profile's, or {DEFAULT_SEGMENTS}]",
            int,
            metavar="N",
            least=1,
            most=MAX_SEGMENTS,
        ),
    ] = None
    fast: Annotated[
        bool | int | None,
        Description(
            "Fast kNN-MT: search each sentence in its own small store. The store must be built with --for-fast.",
            bool,
            read=_number_or_yes,
        ),
    ] = None
    fast_candidates: Annotated[
        int | None,
        Description(
            "Fast kNN-MT with this many occurrences of each source token.  [default: as tuned, or 512]",
            int,
            metavar="C",
            least=1,
        ),
    ] = None
    fast_any_token: Annotated[bool | None, Description("With --fast: compare the occurrences of all tokens.", bool)] = (
        None
    )

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            if value is not None:
                kinds = _kinds()[name]
                words = " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds))
                made = f"; put an existing {name} into a `Retrieval`" if name in ("gate", "combiner") else ""
                check(isinstance(value, kinds), f"{name} must be {words}, got {value!r}{made}")
                described()[name].check(name, value)

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default}

    def over(self, others: RetrievalSettings) -> RetrievalSettings:
        """These settings, completed by the others."""
        return RetrievalSettings(**{**others.given(), **self.given()})


class RetrievalKeywords(TypedDict, total=False):
    """The fields of `RetrievalSettings`, for calls that take them as keywords."""

    k: int | None
    interpolation_weight: float | None
    temperature: float | None
    fading: bool | None
    cache: float | str | None
    gate: float | str | None
    combiner: str | None
    forms: bool | None
    profile: str | RetrievalConfig | None
    search: Literal["whole", "segments"] | None
    segments: int | None
    fast: bool | int | None
    fast_candidates: int | None
    fast_any_token: bool | None


@cache
def described() -> Mapping[str, Description]:
    """Every setting by its name in Python."""
    hints = get_type_hints(RetrievalSettings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


_WORDS: dict[type, str] = {
    bool: "True or False",
    Integral: "a whole number",
    Real: "a number",
    str: "a text",
    RetrievalConfig: "a RetrievalConfig",
}


@cache
def _kinds() -> Mapping[str, tuple[type, ...]]:
    """The types that the value of every setting may have, for `isinstance`: numbers of NumPy are numbers."""
    seen = {bool: (bool, Integral), int: (Integral,), float: (Real,), str: (str,), RetrievalConfig: (RetrievalConfig,)}
    hints = get_type_hints(RetrievalSettings)
    kinds = {name: [str if get_origin(each) is Literal else each for each in get_args(hints[name])] for name in hints}
    return {name: tuple(kind for each in given for kind in seen.get(each, ())) for name, given in kinds.items()}


@cache
def spelled() -> Mapping[str, str]:
    """The name in Python of every setting, by its name on the command line without dashes."""
    return {each.option or name.replace("_", "-"): name for name, each in described().items()}


def parsed(option: str, text: str) -> tuple[str, Any]:
    """The name and the value of a setting written as `option=text`. Raises LookupError or ValueError if it is none."""
    name = spelled()[option]
    return name, described()[name].parse(text)


def settings_of(given: RetrievalSettings | None, **keywords: Unpack[RetrievalKeywords]) -> RetrievalSettings:
    """The settings of a call: a whole, keywords, or both. Keywords take precedence.

    A misspelt keyword raises an error; otherwise it would be ignored silently.
    """
    check(given is None or isinstance(given, RetrievalSettings), f"settings must be RetrievalSettings, got {given!r}")
    if given is not None and not keywords:
        return given
    known = described()
    for name in keywords:
        check(name in known, f"there is no setting {name!r}; the settings of retrieval are {', '.join(known)}")
    asked = RetrievalSettings(**keywords)
    return asked if given is None else asked.over(given)
