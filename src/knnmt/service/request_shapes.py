"""The schemas of requests for the OpenAPI, with examples.

The settings of retrieval are made from their only description (`retrieval/settings.py`). Requests cannot give two of
them, a custom combiner and a custom gate, because these are named by code, and no request may name code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, create_model, model_validator

from knnmt.config import ExactMatches
from knnmt.protection.placeholder_syntax import MAX_PATTERNS
from knnmt.protection.tags import Tags
from knnmt.retrieval.settings import Description, RetrievalSettings, described
from knnmt.translator.piecework import TextSettings

_SENTENCE = "Die Datei wurde gelöscht."
_TRANSLATED = "The file has been deleted."
_MOST_FIELDS = 100  # of an object, so that a body with millions of unknown fields has not millions of errors


class Asked(BaseModel):
    """A body of a request. Unknown fields are errors, and nothing is converted.

    Lists without a largest length have `FailFast`: an error for each of a million items would take seconds.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, content: object) -> object:
        if isinstance(content, dict) and len(content) > _MOST_FIELDS:
            raise ValueError(f"expected at most {_MOST_FIELDS} fields, found {len(content):,}")
        return content


_OTHERWISE: dict[str, Any] = {
    "cache": float | str | None,
    "gate": float | None,
    "fast": bool | int | None,
    "profile": str | None,
}


def _retrieval_field(name: str, each: Description) -> tuple[Any, Any]:
    kind = Literal[each.choices] if each.choices else _OTHERWISE.get(name, each.kind | None)
    bounds: dict[str, Any] = {"ge": each.least, "le": each.most, "gt": each.above, "lt": each.below}
    given: dict[str, Any]
    given = {} if name in ("cache", "fast") else {bound: value for bound, value in bounds.items() if value is not None}
    longest: dict[str, Any] = {"max_length": 100} if kind is (str | None) else {}
    return kind, Field(default=None, description=each.help.replace("  ", " "), **given, **longest)


class _RetrievalBase(Asked):
    """Settings of retrieval.

    Those that are not given are taken from the domain's store; `null` for cache and gate means none.
    """

    def settings(self) -> RetrievalSettings:
        """The settings as the translator takes them."""
        return RetrievalSettings(**{name: getattr(self, name) for name in self.model_fields_set})


if TYPE_CHECKING:
    RetrievalAsked = _RetrievalBase
else:
    RetrievalAsked = create_model(
        "RetrievalSettings",
        __base__=_RetrievalBase,
        **{name: _retrieval_field(name, each) for name, each in described().items() if name != "combiner"},
    )


class TermAsked(Asked):
    """A term and its required translation."""

    source: str = Field(min_length=1, max_length=500, examples=["Lieferant"])
    target: str = Field(min_length=1, max_length=500, examples=["supply partner"])


DomainName = Annotated[
    str | None,
    Field(
        default=None,
        max_length=64,
        description="The domain; by default that of the path, or else the service's default.",
    ),
]


class OfTexts(Asked):
    """Fields of all requests with texts."""

    texts: Annotated[list[str], FailFast()] = Field(
        min_length=1, description="Each is translated separately.", examples=[[_SENTENCE]]
    )
    domain: DomainName
    timeout_seconds: float | None = Field(
        default=None,
        ge=0.001,
        le=86_400,
        description="Time limit; a request that takes longer is answered with status 504.",
    )


class Decoded(OfTexts):
    """Fields of requests whose texts are decoded. The defaults are those of `knnmt translate`."""

    contexts: Annotated[list[str] | None, FailFast()] = Field(
        default=None, description="The context of each text, for exact matches; one for each text."
    )
    source_language: str | None = Field(
        default=None, max_length=35, description="By default the domain's, or else the one that the texts look like."
    )
    target_language: str | None = Field(default=None, max_length=35, description="By default the domain's.")
    beam: int = Field(default=5, ge=1, description="Hypotheses kept at each step; 1 is greedy search.")
    length_penalty: float | None = Field(
        default=None, ge=-100, le=100, description="Values above 0 prefer longer translations."
    )
    max_tokens: int | None = Field(default=None, ge=1, description="The longest translation of a sentence, in tokens.")
    split_sentences: bool = Field(default=True, description="Translate the sentences of a text one by one.")
    glossary: list[TermAsked] = Field(default=[], max_length=1_000, description="Terms that translations must contain.")
    glossary_id: str | None = Field(
        default=None, max_length=80, description="A glossary that was sent before; `glossary` takes precedence."
    )
    protect: bool = Field(default=True, description="Keep placeholders, numbers and tags, each once.")
    tags: Tags = Field(default="auto", description="What counts as a tag.")
    placeholders: list[str] = Field(
        default=[],
        max_length=MAX_PATTERNS,
        description="Patterns of your own placeholders: literal text in which `*` stands for 1 to 100 characters other "
        "than white space, such as `~~*~~`.",
    )
    retrieval: RetrievalAsked = Field(default_factory=RetrievalAsked, description="How the memory is searched.")


class TranslateAsked(Decoded):
    """Texts to translate."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": [_SENTENCE], "domain": "software"}]})

    n_best: int = Field(default=1, ge=1, description="Number of translations for each text, at most the beam.")
    exact_matches: ExactMatches = Field(default="use", description="What to do with texts that are in the memory.")
    match_threshold: int = Field(
        default=100, ge=1, le=100, description="The lowest score of matches that are repaired."
    )
    evidence: bool = Field(default=False, description="Show why each token was chosen.")
    match: bool = Field(default=False, description="Name the memory's closest source segment.")
    stream: bool = Field(default=False, description="Answer with a line of JSON for each text, when it is done.")
    so_far: bool = Field(
        default=False, description="With stream: also send lines with `index` and `so_far` while a text is decoded."
    )

    @model_validator(mode="after")
    def _so_far_is_streamed(self) -> Self:
        if self.so_far and not self.stream:
            raise ValueError("so_far needs stream")
        return self

    def settings(self) -> TextSettings:
        """The settings as the batcher takes them."""
        return TextSettings(
            **_searching(self),
            n_best=self.n_best,
            exact_matches=self.exact_matches,
            match_threshold=self.match_threshold,
            evidence=self.evidence,
            match=self.match,
        )


class ExplainAsked(Decoded):
    """Texts whose translations are to be explained."""

    def settings(self, with_memory: bool) -> TextSettings:
        """The settings of the translation with the memory, and of the one by the model alone."""
        return TextSettings(**_searching(self), exact_matches="ignore", evidence=with_memory, match=with_memory)


class MatchAsked(OfTexts):
    """Texts to compare with the sources of a memory."""

    at_least: int = Field(default=50, ge=1, le=100, description="The lowest score, in percent.")
    limit: int = Field(default=5, ge=1, le=100, description="The most matches for each text.")


class SentencesAsked(Asked):
    """A text to cut into sentences."""

    text: str = Field(description="Any number of lines.", examples=[f"{_SENTENCE} Öffnen Sie sie nicht."])


class SegmentAsked(Asked):
    """A pair of a source and its translation."""

    source: str = Field(min_length=1, examples=[_SENTENCE])
    target: str = Field(min_length=1, examples=[_TRANSLATED])
    context: str = Field(default="", max_length=10_000, description="The context of the text.")
    origin: str | None = Field(
        default=None, min_length=1, max_length=1_000, description="By default, the name of the key."
    )


class SegmentsAsked(Asked):
    """Pairs to store."""

    segments: Annotated[list[SegmentAsked], FailFast()] = Field(min_length=1)


class DomainAsked(SegmentsAsked):
    """A new domain and its first pairs."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", examples=["medical"])
    source_language: str | None = Field(default=None, max_length=35, description="By default as the pairs look.")
    target_language: str | None = Field(default=None, max_length=35, description="By default as the pairs look.")


def _searching(asked: Decoded) -> dict[str, Any]:
    names = ("beam", "length_penalty", "max_tokens", "split_sentences", "protect", "tags")
    return {name: getattr(asked, name) for name in names} | {"placeholders": tuple(asked.placeholders)}
