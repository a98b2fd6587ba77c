"""The settings of a translation, each described once: everything that a call can say besides its texts and its memory.

The keywords of `Translator`, the options of commands, the schemas of HTTP requests, the table `[settings]` of a
service's file, the controls of its page and the texts of `--system` are made from the fields of `TranslationSettings`.
The defaults are the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from knnmt.config import BatchingConfig, ExactMatches, MatchConfig, check
from knnmt.protection.placeholder_syntax import checked_patterns
from knnmt.protection.tags import TAGS, Tags
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.settings import Description, Settings, described, settings_of

Preset = Literal["raw"]
_ON_A_GPU = 128  # sentences of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationSettings(RetrievalSettings):
    """How a call translates and retrieves. None is not given, but for `cache` and `gate`, where None means none.

    beam: hypotheses kept at each step; 5 by default, whatever the checkpoint says; 1 is greedy search
    n_best: number of translations for each text
    length_penalty, early_stopping, max_tokens: by default the checkpoint's
    batch_size, batch_tokens: at most this many sentences and source tokens (including padding) are decoded together; by
        default 32 sentences, 128 on a GPU
    window: number of texts to read ahead and sort by length
    split_sentences: translate a text of several sentences one by one, unless the memory holds them as one segment
    protect: keep placeholders, numbers, tags, accelerators and white space of a text, each exactly once; those of a
        `Marked` text are always kept
    tags: what counts as a tag if `protect` is on: "xml" everything that looks like one, "html" and "auto" known tags,
        "none" nothing
    placeholders: patterns of your own placeholders, which `protect` also keeps: literal text in which * stands for 1 to
        100 characters other than white space, such as "~~*~~"
    exact_matches: "use" takes the memory's own target if it holds the text in the same context, "prefer" only if the
        match is free of doubt, "ignore" decodes every text (`MatchConfig`)
    match_threshold: take fuzzy matches with at least this score, in percent, if only numbers and placeholders differ,
        and insert those of the text; 100 for none
    evidence: return evidence for every token that was decoded
    steps: return the neighbours of every token as tensors, `Translation.steps`
    match: return the memory's closest source segment
    """

    beam: Annotated[
        int | None,
        Description("Hypotheses kept at each step; 1 is greedy search.", int, default=5, least=1, group="decoding"),
    ] = None
    n_best: Annotated[
        int | None,
        Description(
            "Number of translations for each text, at most the beam.",
            int,
            default=1,
            least=1,
            group="decoding",
            uses=("texts",),
        ),
    ] = None
    length_penalty: Annotated[
        float | None,
        Description(
            "A value above 0 prefers longer translations.",
            float,
            otherwise="the checkpoint's",
            least=-100,
            most=100,
            group="decoding",
        ),
    ] = None
    early_stopping: Annotated[
        bool | Literal["never"] | None,
        Description(
            "When the search of a sentence ends: True when there are enough hypotheses.",
            str,
            otherwise="the checkpoint's",
            choices=(True, False, "never"),
            group="decoding",
            interfaces=(),
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        Description(
            "A translation of a sentence has at most this many tokens.",
            int,
            otherwise="the checkpoint's",
            least=1,
            group="decoding",
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Description(
            "At most this many sentences are decoded together.",
            int,
            otherwise=f"{BatchingConfig().sentences}; {_ON_A_GPU} on a GPU",
            least=1,
            group="decoding",
            interfaces=("command line",),
            uses=("texts", "documents", "evaluate"),
        ),
    ] = None
    batch_tokens: Annotated[
        int | None,
        Description(
            "At most this many source tokens are decoded together, including padding.",
            int,
            least=1,
            group="decoding",
            interfaces=("command line",),
            uses=("texts", "documents", "evaluate"),
        ),
    ] = None
    window: Annotated[
        int | None,
        Description(
            "Number of lines to read ahead and sort by length. A line is written when it and all earlier lines are "
            "done. Ctrl-C loses at most this many. 1 translates line by line.",
            int,
            default=BatchingConfig().window,
            least=1,
            group="decoding",
            interfaces=("command line",),
            uses=("texts",),
        ),
    ] = None
    split_sentences: Annotated[
        bool | None,
        Description(
            "Translate the sentences of a text one by one and keep the white space between them, unless the memory "
            "holds the text as one segment.",
            bool,
            default=True,
            group="text",
        ),
    ] = None
    protect: Annotated[
        bool | None,
        Description(
            "Keep placeholders, numbers, tags, accelerators and white space unaltered, each exactly once "
            "(docs/placeholders.md).",
            bool,
            default=True,
            group="text",
            uses=("texts", "explain", "evaluate", "bench", "service"),
        ),
    ] = None
    tags: Annotated[
        Tags | None,
        Description(
            "What counts as a tag: xml (everything that looks like one), html or auto (known tags), or none.",
            str,
            default="auto",
            choices=TAGS,
            group="text",
        ),
    ] = None
    placeholders: Annotated[
        tuple[str, ...] | None,
        Description(
            "Also keep placeholders of this form: literal text in which * stands for 1 to 100 characters other than "
            "white space, such as ~~*~~.",
            str,
            default=(),
            option="placeholder",
            metavar="PATTERN",
            many=True,
            group="text",
        ),
    ] = None
    exact_matches: Annotated[
        ExactMatches | None,
        Description(
            "How to translate a text that the memory holds. use: take the memory's target. prefer: take it, unless the "
            "memory has several or context or placeholders differ. ignore: translate it like any other text.",
            str,
            default="use",
            choices=("use", "prefer", "ignore"),
            group="memory",
            uses=("texts", "documents", "evaluate", "bench", "service"),
        ),
    ] = None
    match_threshold: Annotated[
        int | None,
        Description(
            "Take matches with at least this score, in percent, if only numbers and placeholders differ, and insert "
            "those of the text; 100 takes exact matches only.",
            int,
            default=100,
            least=1,
            most=100,
            group="memory",
            uses=("texts", "documents", "evaluate", "bench", "service"),
        ),
    ] = None
    evidence: Annotated[
        bool | None,
        Description("Say why each token was chosen.", bool, default=False, group="memory", uses=("texts",)),
    ] = None
    match: Annotated[
        bool | None,
        Description("Name the memory's closest source segment.", bool, default=False, group="memory", uses=("texts",)),
    ] = None
    steps: Annotated[
        bool | None,
        Description("Return the neighbours of every token.", bool, default=False, group="memory", interfaces=()),
    ] = None

    def __post_init__(self) -> None:
        if self.placeholders is not None:
            object.__setattr__(self, "placeholders", checked_patterns(self.placeholders))
        Settings.__post_init__(self)

    def resolved(self) -> TranslationSettings:
        """These settings with every default that does not depend on a model, a machine or a store."""
        return self.over(_USUAL)

    @property
    def retrieval(self) -> RetrievalSettings:
        """The settings of retrieval alone."""
        given = self.given()
        return RetrievalSettings(**{name: given[name] for name in described(RetrievalSettings) if name in given})

    @property
    def without_retrieval(self) -> TranslationSettings:
        """The settings other than those of retrieval."""
        retrieval_names = described(RetrievalSettings)
        given = {name: value for name, value in self.given().items() if name not in retrieval_names}
        return TranslationSettings(**given)

    @property
    def decoding(self) -> dict[str, Any]:
        """The given settings of the search, as fields of `DecodingConfig`."""
        names = ("beam", "n_best", "length_penalty", "early_stopping", "max_tokens")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def matching(self) -> MatchConfig:
        """Which matches are taken from the memory."""
        complete = cast("Any", self.resolved())
        return MatchConfig(complete.exact_matches, complete.match_threshold)

    def batching(self, on_gpu: bool) -> BatchingConfig:
        """How segments are grouped."""
        usual = _ON_A_GPU if on_gpu else BatchingConfig().sentences
        sentences = usual if self.batch_size is None and self.batch_tokens is None else self.batch_size
        return BatchingConfig(sentences, self.batch_tokens, self.window or BatchingConfig().window)

    def signature(self, with_memory: bool) -> str:
        """Identifies how texts are prepared and matches are used, in the signature of a published score."""
        complete = self.resolved()
        parts = ["split"] * bool(complete.split_sentences) + [f"protect/{complete.tags}"] * bool(complete.protect)
        text = f"text:{'+'.join(parts) or 'raw'}"
        if not with_memory or complete.exact_matches == "ignore":
            return text
        return f"{text}|matches:{complete.exact_matches}/{complete.match_threshold}"


class TranslationKeywords(RetrievalKeywords, total=False):
    """The fields of `TranslationSettings`, for calls that take them as keywords."""

    beam: int | None
    n_best: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    max_tokens: int | None
    batch_size: int | None
    batch_tokens: int | None
    window: int | None
    split_sentences: bool | None
    protect: bool | None
    tags: Tags | None
    placeholders: tuple[str, ...] | list[str] | None
    exact_matches: ExactMatches | None
    match_threshold: int | None
    evidence: bool | None
    match: bool | None
    steps: bool | None


_USUAL = TranslationSettings(
    **{name: each.default for name, each in described(TranslationSettings).items() if each.default is not None}
)
PRESETS: dict[Preset, TranslationSettings] = {
    "raw": TranslationSettings(split_sentences=False, protect=False, exact_matches="ignore", match_threshold=100)
}
"""Settings with a name. "raw" decodes every text as it is, as published scores of models are measured."""


def translation_settings(given: RetrievalSettings | Preset | None, **keywords: Any) -> TranslationSettings:
    """The settings of a call: a whole or the name of a preset, keywords, or both. Keywords take precedence."""
    if isinstance(given, str):
        check(given in PRESETS, f"settings must be TranslationSettings or one of {', '.join(PRESETS)}, got {given!r}")
        given = PRESETS[given]
    return settings_of(TranslationSettings, given, **keywords)
