"""The schemas of answers for the OpenAPI, with examples."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ProblemAnswer(BaseModel):
    """An error."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"code": "unknown_domain", "message": "there is no domain 'x'"}]}
    )

    code: str = Field(description="For programs.")
    message: str = Field(description="For people: what was expected, what was found, what to do.")


class MatchAnswer(BaseModel):
    """A segment of the memory that is similar to a text."""

    source: str
    target: str
    origin: str
    score: int = Field(description="In percent.")
    exact: bool


class AlternativeAnswer(BaseModel):
    """A translation that is not the best."""

    text: str
    score: float


class CautionAnswer(BaseModel):
    """A warning about a translation."""

    kind: str
    message: str


class WordAnswer(BaseModel):
    """A word of a translation. share: how much of it came from the memory, 0 to 1"""

    text: str
    span: tuple[int, int]
    share: float


class EvidenceWordAnswer(WordAnswer):
    """A word of a translation whose tokens have evidence."""

    tokens: list[int] = Field(description="The numbers of its tokens in the translation.")


class TranslationAnswer(BaseModel):
    """A translation. Fields without a value are left out."""

    model_config = ConfigDict(extra="allow")

    text: str = Field(examples=["The file has been deleted."])
    kind: Literal["exact match", "repaired match", "with memory", "model alone"] | None = Field(
        description="Where it came from; null if there was nothing to translate, or no translation was found."
    )
    score: float | None
    complete: bool = Field(description="False if the translation was cut off at the longest allowed length.")
    index: int | None = Field(default=None, description="In a stream: the number of its text.")
    source_language: str | None = Field(default=None, description="If it is known.")
    target_language: str | None = Field(default=None, description="If it is known.")
    alternatives: list[AlternativeAnswer] | None = None
    tokens: list[str] | None = Field(default=None, description="With evidence.")
    evidence: list[dict[str, Any] | None] | None = Field(
        default=None, description="The evidence of each token, on request."
    )
    segments: list[dict[str, str]] | None = Field(default=None, description="The segments that the evidence refers to.")
    words: list[EvidenceWordAnswer] | None = Field(default=None, description="With evidence; a match has none.")
    match: MatchAnswer | None = None
    coverage: dict[str, float] | None = Field(default=None, description="How much of the text the memory covers.")
    certainty: int | None = Field(default=None, description="How much of it a reviewer is likely to keep, in percent.")
    warnings: list[CautionAnswer] | None = None
    error: str | None = Field(default=None, description="Why no translation was found.")


class TranslateAnswer(BaseModel):
    """Translations in the order of the texts."""

    domain: str
    translations: list[TranslationAnswer]


class PassageAnswer(BaseModel):
    """Successive words that depend mostly on the same segment of the memory.

    spans: the parts of its target that support them
    """

    text: str
    share: float
    source: str
    target: str
    origin: str
    spans: list[tuple[int, int]]


class ExplanationAnswer(BaseModel):
    """Where a translation came from."""

    text: str
    share: float = Field(description="How much of it came from the memory, 0 to 1.")
    alone: str = Field(description="The translation of the model alone.")
    words: list[WordAnswer]
    passages: list[PassageAnswer]
    match: MatchAnswer | None = None
    error: str | None = None


class ExplainAnswer(BaseModel):
    """Explanations in the order of the texts."""

    domain: str
    explanations: list[ExplanationAnswer]


class SentencesAnswer(BaseModel):
    """The sentences of a text in order, each with the white space that follows it. Joined, they are the text again."""

    sentences: list[str]
    language: str | None = Field(
        default=None, description="The language that the text looks like; null if it is unclear or need not be known."
    )


class MatchesAnswer(BaseModel):
    """The matches of each text, the best first."""

    domain: str
    matches: list[list[MatchAnswer]]


class DirectionAnswer(BaseModel):
    """Two languages."""

    source: str | None
    target: str | None


class DomainAnswer(BaseModel):
    """A domain."""

    name: str
    default: bool
    memory: bool = Field(description="False for the model alone.")
    source_language: str | None = Field(description="Null if several are possible, or if it is unknown.")
    target_language: str | None
    directions: list[DirectionAnswer] | None = Field(
        default=None, description="What the model alone translates between."
    )
    segments: int | None = None
    entries: int | None = None
    generation: int | None = Field(default=None, description="Increases with every change.")
    deletable: bool | None = None


class DomainsAnswer(BaseModel):
    """All domains that the caller may use."""

    domains: list[DomainAnswer]


class StoredAnswer(BaseModel):
    """The result of a change. It is stored, and the next request uses it."""

    domain: str
    generation: int
    segments: int = Field(description="Segments in the domain after the change.")
    stored: int = Field(description="Pairs that were added, or already there.")


class RemovedAnswer(BaseModel):
    """What was removed."""

    domain: str
    generation: int
    segments: int
    removed: int


class ChangedAnswer(BaseModel):
    """A domain after a change."""

    domain: str
    generation: int
    segments: int = Field(description="Segments in the domain after the change.")


class SegmentAnswer(BaseModel):
    """A pair of the memory."""

    source: str
    target: str
    origin: str
    context: str = ""


class JobAnswer(BaseModel):
    """A memory that becomes a domain, or is added to one."""

    id: str
    domain: str
    name: str = Field(description="The name of the memory.", examples=["projekt.tmx"])
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    stage: Literal["building", "tuning", "publishing", "indexing"] | None = Field(
        default=None, description="While it runs. A new domain can be used while it is tuned."
    )
    adding: bool = Field(description="Whether the memory is added to an existing domain.")
    done: int = Field(description="Pairs that are built.")
    of: int | None = Field(default=None, description="Their total number, once it is known.")
    by: str = Field(description="The name of the sender's key.")
    created: float = Field(description="Seconds since 1970.")
    ended: float | None = None
    message: str | None = Field(default=None, description="Why it failed.")
    summary: list[str] = Field(
        default=[], description="What became of the memory's units, and what a new domain gains over the model alone."
    )


class DocumentAnswer(BaseModel):
    """A document that is being translated."""

    id: str = Field(description="Whoever knows it may download the document.")
    domain: str
    name: str = Field(examples=["app.po"])
    download_name: str | None = Field(
        default=None, description="The name of its translation, which says the language.", examples=["app.en.po"]
    )
    state: Literal["waiting", "running", "done", "failed"]
    done: int = Field(description="Units that are translated.")
    of: int | None = Field(default=None, description="Units to translate, once the document is read.")
    message: str | None = Field(default=None, description="Why it failed.")


class UnitMatchAnswer(BaseModel):
    """The memory's segment for a unit."""

    source: str
    target: str
    origin: str
    score: int = Field(description="In percent.")


class UnitAnswer(BaseModel):
    """A unit of a translated document. Fields without a value are left out."""

    unit: str = Field(description="Its id in the document.", examples=["line 4"])
    state: Literal["failed", "new", "fuzzy", "finished"] = Field(
        description="new: translated now; failed: this was not possible; otherwise it had a translation before."
    )
    kind: Literal["exact match", "repaired match", "with memory", "model alone"] | None = Field(
        default=None, description="Where a new translation came from; null if there was nothing to translate."
    )
    source: str
    text: str
    match: UnitMatchAnswer | None = None
    coverage: dict[str, float] | None = Field(default=None, description="How much of the source the memory covers.")
    certainty: int | None = Field(default=None, description="How much of it a reviewer is likely to keep, in percent.")
    warnings: list[CautionAnswer] | None = None
    error: str | None = Field(default=None, description="Why it failed.")


class UnitsAnswer(BaseModel):
    """Units of a document, in the order in which to look at them."""

    units: list[UnitAnswer]
    of: int = Field(description="Their number in the document.")
    source_language: str | None = Field(default=None, description="If it is known.")
    target_language: str | None = Field(default=None, description="If it is known.")


class DictionaryAnswer(BaseModel):
    """The terms of a glossary in two languages."""

    source_language: str
    target_language: str
    terms: int = Field(description="Their number.")


class GlossaryAnswer(BaseModel):
    """A glossary."""

    id: str
    name: str = Field(examples=["terms.tsv"])
    by: str = Field(description="The name of the key that sent it.")
    created: float = Field(description="Seconds since 1970.")
    dictionaries: list[DictionaryAnswer]


class SentGlossaryAnswer(GlossaryAnswer):
    """A glossary that was made of a file."""

    left_out: int = Field(description="Further translations of the same terms; the first one counts.")


class GlossariesAnswer(BaseModel):
    """Glossaries, the oldest first."""

    glossaries: list[GlossaryAnswer]


class JobsAnswer(BaseModel):
    """Jobs, the oldest first."""

    jobs: list[JobAnswer]


class SegmentsAnswer(BaseModel):
    """Pairs of the memory, the newest first."""

    domain: str
    segments: list[SegmentAnswer]


class CorrectionAnswer(BaseModel):
    """What a domain has learned for one source. replaced: what it held for the source before"""

    id: str
    by: str = Field(description="The name of the key that corrected.")
    created: float = Field(description="Seconds since 1970.")
    segments: list[SegmentAnswer]
    replaced: list[SegmentAnswer]


class CorrectionsAnswer(BaseModel):
    """Corrections of a domain, the newest first."""

    domain: str
    corrections: list[CorrectionAnswer]
