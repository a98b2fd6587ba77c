"""The settings of retrieval, each described once. They are resolved into a `RetrievalConfig`, which a profile keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from knnmt.config import DEFAULT_SEGMENTS, MAX_NEIGHBOURS, MAX_SEGMENTS, RetrievalConfig
from knnmt.settings import NOT_GIVEN, Description, NotGiven, Settings, yes_or_no

TRAINED_COMBINERS = ("robust", "robust-fading")  # those of knnmt itself
"""Combiners that a store may have, by the names of their methods (`knnmt.retrieval.trained`)."""


def _number_or_yes(text: str) -> bool | int:
    return int(text) if text.isdecimal() else yes_or_no(text)


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings(Settings):
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
        int | None,
        Description(
            "Neighbours per step.",
            int,
            least=1,
            most=MAX_NEIGHBOURS,
            otherwise="the store's",
        ),
    ] = None
    interpolation_weight: Annotated[
        float | None,
        Description(
            "A fixed weight of the memory, at least 0 and below 1.",
            float,
            option="lambda",
            least=0,
            below=1,
            otherwise="a weight that depends on the distance of the nearest entries, and fades if the memory has "
            "nothing similar",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Description(
            "How evenly neighbours share the weight. A higher value gives far neighbours more.",
            float,
            above=0,
            otherwise="the store's",
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
            interfaces=("command line",),
        ),
    ] = None
    forms: Annotated[
        bool | None,
        Description(
            "Give the model a line as the memory holds it, if they differ only in a final mark, capitals, white "
            "space or an accelerator.",
            bool,
            otherwise="forms",
        ),
    ] = None
    profile: Annotated[
        str | RetrievalConfig | None,
        Description(
            "The name of settings saved with the store (see knnmt tune); estimated: those estimated from the store "
            "alone.",
            str,
            otherwise="the store's",
        ),
    ] = None
    search: Annotated[
        Literal["whole", "segments"] | None,
        Description(
            "segments: search only the segments that cover a source best, exactly; the cost does not grow with the "
            "store. whole: search all entries of the store, by its index if it has one.",
            str,
            choices=("whole", "segments"),
            otherwise="the profile's; without one, segments",
        ),
    ] = None
    segments: Annotated[
        int | None,
        Description(
            "Search this many segments for each sentence.",
            int,
            metavar="N",
            least=1,
            most=MAX_SEGMENTS,
            otherwise=f"the profile's, or {DEFAULT_SEGMENTS}",
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
            "Fast kNN-MT with this many occurrences of each source token.",
            int,
            metavar="C",
            least=1,
            otherwise="as tuned, or 512",
        ),
    ] = None
    fast_any_token: Annotated[bool | None, Description("With --fast: compare the occurrences of all tokens.", bool)] = (
        None
    )


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
