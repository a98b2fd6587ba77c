"""The schemas of requests for the OpenAPI, with examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, create_model, model_validator

from knnmt.retrieval.settings import RetrievalSettings
from knnmt.service.http.setting_shapes import body_fields, given_settings
from knnmt.settings import described
from knnmt.translator.settings import TranslationSettings

_SENTENCE = "Die Datei wurde gelöscht."
_TRANSLATED = "The file has been deleted."
_MOST_FIELDS = 100  # of an object, so that a body with millions of unknown fields has not millions of errors


class Body(BaseModel):
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


class _RetrievalBase(Body):
    """Settings of retrieval.

    Those that are not given are taken from the domain's store; `null` for cache and gate means none.
    """


if TYPE_CHECKING:
    RetrievalBody = _RetrievalBase
else:
    retrieval_fields = body_fields(RetrievalSettings, "explain")
    RetrievalBody = create_model("RetrievalSettings", __base__=_RetrievalBase, **retrieval_fields)


class TermBody(Body):
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


class TextsBody(Body):
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


class _DecodedBase(TextsBody):
    """Fields of requests whose texts are decoded. The defaults of settings are those of `knnmt translate`."""

    contexts: Annotated[list[str] | None, FailFast()] = Field(
        default=None, description="The context of each text, for exact matches; one for each text."
    )
    source_language: str | None = Field(
        default=None, max_length=35, description="By default the domain's, or else the one that the texts look like."
    )
    target_language: str | None = Field(default=None, max_length=35, description="By default the domain's.")
    glossary: list[TermBody] = Field(default=[], max_length=1_000, description="Terms that translations must contain.")
    glossary_id: str | None = Field(
        default=None, max_length=80, description="A glossary that was sent before; `glossary` takes precedence."
    )
    retrieval: RetrievalBody = Field(default_factory=RetrievalBody, description="How the memory is searched.")

    def settings(self) -> TranslationSettings:
        """The given settings."""
        return given_settings(self).over(given_settings(self.retrieval))


if TYPE_CHECKING:
    DecodedBody = _DecodedBase
else:
    DecodedBody = create_model(
        "DecodedBody",
        __base__=_DecodedBase,
        **body_fields(TranslationSettings, "explain", described(RetrievalSettings)),
    )


class _TranslateBase(DecodedBody):
    """Texts to translate."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": [_SENTENCE], "domain": "software"}]})

    stream: bool = Field(default=False, description="Answer with a line of JSON for each text, when it is done.")
    so_far: bool = Field(
        default=False, description="With stream: also send lines with `index` and `so_far` while a text is decoded."
    )

    @model_validator(mode="after")
    def _so_far_is_streamed(self) -> Self:
        if self.so_far and not self.stream:
            raise ValueError("so_far needs stream")
        return self


if TYPE_CHECKING:
    TranslateBody = _TranslateBase
else:
    TranslateBody = create_model(
        "TranslateBody",
        __base__=_TranslateBase,
        **body_fields(TranslationSettings, "texts", {*described(RetrievalSettings), *DecodedBody.model_fields}),
    )


class ExplainBody(DecodedBody):
    """Texts whose translations are to be explained."""


class MatchBody(TextsBody):
    """Texts to compare with the sources of a memory."""

    at_least: int = Field(default=50, ge=1, le=100, description="The lowest score, in percent.")
    limit: int = Field(default=5, ge=1, le=100, description="The most matches for each text.")


class SentencesBody(Body):
    """A text to cut into sentences."""

    text: str = Field(description="Any number of lines.", examples=[f"{_SENTENCE} Öffnen Sie sie nicht."])


class SegmentBody(Body):
    """A pair of a source and its translation."""

    source: str = Field(min_length=1, examples=[_SENTENCE])
    target: str = Field(min_length=1, examples=[_TRANSLATED])
    context: str = Field(default="", max_length=10_000, description="The context of the text.")
    origin: str | None = Field(
        default=None, min_length=1, max_length=1_000, description="By default, the name of the key."
    )


class SegmentsBody(Body):
    """Pairs to store."""

    segments: Annotated[list[SegmentBody], FailFast()] = Field(min_length=1)


class DomainBody(SegmentsBody):
    """A new domain and its first pairs."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", examples=["medical"])
    source_language: str | None = Field(default=None, max_length=35, description="By default as the pairs look.")
    target_language: str | None = Field(default=None, max_length=35, description="By default as the pairs look.")
