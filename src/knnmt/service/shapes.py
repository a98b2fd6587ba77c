"""What requests and answers look like: the schemas of the OpenAPI, with examples.

The settings of retrieval are made from the one description that they have (`retrieval/settings.py`). Two are not taken
from requests: a combiner and a gate of one's own are named by code, and no request may name code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from knnmt.config import ExactMatches
from knnmt.protection.tags import Tags
from knnmt.retrieval.settings import Description, RetrievalSettings, described
from knnmt.translator.piecework import TextSettings

_SENTENCE = "Die Datei wurde gelöscht."
_TRANSLATED = "The file has been deleted."


class Asked(BaseModel):
    """A body of a request: what is not known is refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


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
    """Settings of retrieval. What is not given is as the domain's store says; `null` for cache and gate says: none."""

    def settings(self) -> RetrievalSettings:
        """As the translator takes them."""
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
    """A term and the translation that it must have."""

    source: str = Field(min_length=1, max_length=500, examples=["Lieferant"])
    target: str = Field(min_length=1, max_length=500, examples=["supply partner"])


DomainName = Annotated[
    str | None,
    Field(default=None, max_length=64, description="The domain; by default that of the path, and else the service's."),
]


class OfTexts(Asked):
    """What requests with texts have in common."""

    texts: list[str] = Field(min_length=1, description="Each is translated for itself.", examples=[[_SENTENCE]])
    domain: DomainName
    timeout_seconds: float | None = Field(
        default=None,
        ge=0.001,
        le=86_400,
        description="Within how many seconds it must be done; else the answer is 504.",
    )


class Decoded(OfTexts):
    """What requests say whose texts are decoded. The defaults are those of `knnmt translate`."""

    contexts: list[str] | None = Field(
        default=None, description="Where each text is used, for exact matches; as many as there are texts."
    )
    source_language: str | None = Field(default=None, max_length=35, description="For models of many languages.")
    target_language: str | None = Field(default=None, max_length=35, description="For models of many languages.")
    beam: int = Field(default=5, ge=1, description="Hypotheses kept at each step; 1 is greedy search.")
    length_penalty: float | None = Field(default=None, ge=-100, le=100, description="Above 0 prefers longer ones.")
    max_tokens: int | None = Field(default=None, ge=1, description="Longest translation of a sentence.")
    split_sentences: bool = Field(default=True, description="Translate a text of several sentences one by one.")
    glossary: list[TermAsked] = Field(default=[], max_length=1_000, description="Terms that translations must have.")
    protect: bool = Field(default=True, description="Placeholders, numbers and tags come out once each.")
    tags: Tags = Field(default="auto", description="What counts as a tag.")
    retrieval: RetrievalAsked = Field(default_factory=RetrievalAsked, description="How the memory is searched.")


class TranslateAsked(Decoded):
    """Texts to translate."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": [_SENTENCE], "domain": "software"}]})

    n_best: int = Field(default=1, ge=1, description="Translations of each text; at most as many as the beam.")
    exact_matches: ExactMatches = Field(default="use", description="What becomes of texts that the memory holds.")
    match_threshold: int = Field(default=100, ge=1, le=100, description="Score from which matches are repaired.")
    evidence: bool = Field(default=False, description="Say why each token was chosen.")
    match: bool = Field(default=False, description="Name the memory's closest source segment.")
    stream: bool = Field(default=False, description="Answer with a line of JSON for each text, when it is done.")
    so_far: bool = Field(
        default=False, description="With stream: lines with `index` and `so_far`, too, while a text is decoded."
    )

    @model_validator(mode="after")
    def _so_far_is_streamed(self) -> Self:
        if self.so_far and not self.stream:
            raise ValueError("so_far: expected with stream alone")
        return self

    def settings(self) -> TextSettings:
        """As the batcher takes them."""
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
        """Of the translation with the memory, and of that by the model alone."""
        return TextSettings(**_searching(self), exact_matches="ignore", evidence=with_memory, match=with_memory)


class MatchAsked(OfTexts):
    """Texts whose like is looked for among the sources of a memory."""

    at_least: int = Field(default=50, ge=1, le=100, description="The lowest score, in percent.")
    limit: int = Field(default=5, ge=1, le=100, description="Matches of each text.")


class SentencesAsked(Asked):
    """A text to cut into sentences."""

    text: str = Field(description="Any number of lines.", examples=[f"{_SENTENCE} Öffnen Sie sie nicht."])


class SegmentAsked(Asked):
    """A pair of a source and its translation."""

    source: str = Field(min_length=1, examples=[_SENTENCE])
    target: str = Field(min_length=1, examples=[_TRANSLATED])
    context: str = Field(default="", max_length=10_000, description="Where the text is used.")
    origin: str | None = Field(default=None, min_length=1, max_length=1_000, description="By default who wrote it.")


class SegmentsAsked(Asked):
    """Pairs to store."""

    segments: list[SegmentAsked] = Field(min_length=1)


class DomainAsked(SegmentsAsked):
    """A new domain and its first pairs."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", examples=["medical"])


def _searching(asked: Decoded) -> dict[str, Any]:
    names = ("beam", "length_penalty", "max_tokens", "split_sentences", "protect", "tags")
    return {name: getattr(asked, name) for name in names}


# Answers --------------------------------------------------------------------------------------------------------------


class ProblemAnswer(BaseModel):
    """Every answer to an error."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"code": "unknown_domain", "message": "there is no domain 'x'"}]}
    )

    code: str = Field(description="For programs.")
    message: str = Field(description="For people: what was expected, what came, what to do.")


class MatchAnswer(BaseModel):
    """A segment of the memory that is like a text."""

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
    """What whoever uses a translation should know of it."""

    kind: str
    message: str


class WordAnswer(BaseModel):
    """A word of a translation. share: how much of it came from the memory, 0 to 1"""

    text: str
    span: tuple[int, int]
    share: float


class EvidenceWordAnswer(WordAnswer):
    """A word of a translation whose tokens have evidence."""

    tokens: list[int] = Field(description="Which of the translation's tokens it is made of.")


class TranslationAnswer(BaseModel):
    """A translation. What there is not is left out."""

    model_config = ConfigDict(extra="allow")

    text: str = Field(examples=[_TRANSLATED])
    kind: Literal["exact match", "repaired match", "with memory", "model alone"] | None = Field(
        description="What it is; null where there was nothing to translate, or nothing was found."
    )
    score: float | None
    complete: bool = Field(description="False where the longest allowed translation was reached.")
    index: int | None = Field(default=None, description="Where results are streamed: which text it is of.")
    alternatives: list[AlternativeAnswer] | None = None
    tokens: list[str] | None = Field(default=None, description="With evidence.")
    evidence: list[dict[str, Any] | None] | None = Field(default=None, description="Of each token, on request.")
    segments: list[dict[str, str]] | None = Field(default=None, description="That the evidence speaks of.")
    words: list[EvidenceWordAnswer] | None = Field(default=None, description="With evidence; none of a match.")
    match: MatchAnswer | None = None
    coverage: dict[str, float] | None = Field(default=None, description="How much of the text the memory covers.")
    certainty: int | None = Field(default=None, description="In percent: how much of it is likely to stay.")
    warnings: list[CautionAnswer] | None = None
    error: str | None = Field(default=None, description="Where no translation was found: why.")


class TranslateAnswer(BaseModel):
    """Translations in the order of the texts."""

    domain: str
    translations: list[TranslationAnswer]


class PassageAnswer(BaseModel):
    """Words in a row that owe most to the same segment of the memory. spans: of its target, what spoke for them"""

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
    alone: str = Field(description="What the model alone says.")
    words: list[WordAnswer]
    passages: list[PassageAnswer]
    match: MatchAnswer | None = None
    error: str | None = None


class ExplainAnswer(BaseModel):
    """Explanations in the order of the texts."""

    domain: str
    explanations: list[ExplanationAnswer]


class SentencesAnswer(BaseModel):
    """The sentences of a text in order, each with the white space that follows it; joined, they are the text again."""

    sentences: list[str]


class MatchesAnswer(BaseModel):
    """The matches of each text, the best first."""

    domain: str
    matches: list[list[MatchAnswer]]


class DomainAnswer(BaseModel):
    """A domain."""

    name: str
    default: bool
    memory: bool = Field(description="False for the model alone.")
    source_language: str | None
    target_language: str | None
    segments: int | None = None
    entries: int | None = None
    generation: int | None = Field(default=None, description="Grows with every change.")
    deletable: bool | None = None


class DomainsAnswer(BaseModel):
    """All domains that the caller may use."""

    domains: list[DomainAnswer]


class StoredAnswer(BaseModel):
    """What a change did. It lasts, and the next request uses it."""

    domain: str
    generation: int
    segments: int = Field(description="That the domain holds now.")
    stored: int = Field(description="Pairs that were put in, or were there already.")


class RemovedAnswer(BaseModel):
    """What was removed."""

    domain: str
    generation: int
    segments: int
    removed: int


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
    name: str = Field(description="What the memory is called.", examples=["projekt.tmx"])
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    stage: Literal["building", "publishing", "indexing"] | None = Field(default=None, description="While it runs.")
    adding: bool = Field(description="To a domain that was there already.")
    done: int = Field(description="Pairs that are built.")
    of: int | None = Field(default=None, description="How many there will be, where that is known.")
    by: str = Field(description="Whose key sent it.")
    created: float = Field(description="Seconds since 1970.")
    ended: float | None = None
    message: str | None = Field(default=None, description="Why it failed.")
    summary: list[str] = Field(default=[], description="What became of the memory's units.")


class DocumentAnswer(BaseModel):
    """A document that is being translated."""

    id: str = Field(description="Whoever knows it may ask for the document.")
    domain: str
    name: str = Field(examples=["app.po"])
    state: Literal["waiting", "running", "done", "failed"]
    done: int = Field(description="Units that are translated.")
    of: int | None = Field(default=None, description="How many there are to translate, once it is read.")
    message: str | None = Field(default=None, description="Why it failed.")


class JobsAnswer(BaseModel):
    """Jobs, the oldest first."""

    jobs: list[JobAnswer]


class SegmentsAnswer(BaseModel):
    """Pairs of the memory, the newest first."""

    domain: str
    segments: list[SegmentAnswer]
