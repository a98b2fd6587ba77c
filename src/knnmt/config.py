"""Settings of a run: frozen dataclasses that check themselves and have a signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from knnmt.errors import SettingError

MAX_NEIGHBOURS = 4096  # per step: each is compared with every other
MAX_SEGMENTS = 4096  # for one sentence
DEFAULT_SEGMENTS = 512  # docs/results/segments.md has the measurement
_MAX_COUNT = (1 << 31) - 1  # for any count
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-20, 1e20  # outside, weights vanish in float32: the memory has no effect


def check(condition: bool, message: str) -> None:
    """Raise `SettingError(message)` unless `condition` holds."""
    if not condition:
        raise SettingError(message)


@dataclass(frozen=True, slots=True)
class DecodingConfig:
    """How hypotheses are searched. Values that a call does not give come from the checkpoint's generation settings.

    The length of a hypothesis is the number of generated tokens, including the end of sentence but not the decoder's
    start token.
    """

    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    max_tokens: int = 511
    min_tokens: int = 0
    forced_first_token: int | None = None
    forced_last_token: int | None = None
    suppressed_tokens: tuple[int, ...] = ()
    suppressed_sequences: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        check(self.beam >= 1, f"beam must be at least 1, got {self.beam}")
        check(
            1 <= self.n_best <= self.beam,
            f"n_best must lie between 1 and the beam size {self.beam}, got {self.n_best}; use a larger beam",
        )
        check(
            abs(self.length_penalty) <= 100,  # also false for NaN
            f"length_penalty must lie between -100 and 100, got {self.length_penalty}",
        )
        check(self.max_tokens >= 1, f"max_tokens must be at least 1, got {self.max_tokens}")
        check(
            self.early_stopping in (True, False, "never"),
            f"early_stopping must be True, False or 'never', got {self.early_stopping!r}",
        )

    def signature(self) -> str:
        """Identifies the search in the signature of a published score."""
        if self.beam == 1:
            return f"beam:1|max:{self.max_tokens}"
        stopping = {True: "yes", False: "no", "never": "never"}[self.early_stopping]
        return f"beam:{self.beam}|lp:{self.length_penalty:g}|early:{stopping}|max:{self.max_tokens}"


@dataclass(frozen=True, slots=True)
class BatchingConfig:
    """How segments are grouped: at most `sentences` in a batch, and at most `tokens` source tokens, including padding.

    Segments are sorted by length within a window of `window` segments, which bounds memory on endless input.
    """

    sentences: int | None = 32
    tokens: int | None = None
    window: int = 512

    def __post_init__(self) -> None:
        check(
            self.sentences is not None or self.tokens is not None,
            "a batch needs a limit: give batch_size (sentences), batch_tokens, or both",
        )
        check(self.sentences is None or self.sentences >= 1, f"batch_size must be at least 1, got {self.sentences}")
        check(self.tokens is None or self.tokens >= 1, f"batch_tokens must be at least 1, got {self.tokens}")
        check(self.window >= 1, f"window must be at least 1, got {self.window}")


@dataclass(frozen=True, slots=True)
class OpenStores:
    """How many stores stay open for later calls. Beyond that, the least recently used ones are closed.

    The stores of all models and languages of a translator count together. Stores that the current texts use are never
    closed.

    count: the largest number of stores
    size: the largest sum of their files in bytes, None for half of the machine's memory
    """

    count: int = 32
    size: int | None = None

    def __post_init__(self) -> None:
        check(self.count >= 1, f"count must be at least 1, got {self.count}")
        check(self.size is None or self.size >= 0, f"size must be at least 0, got {self.size}")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """When a step reuses an earlier step's retrieval instead of searching.

    threshold: τ, the largest Euclidean distance between the two decoder states
    scope: "sentence" keeps a cache for each sentence, shared by its beams; "batch" keeps one for all sentences of a
        batch, so that results depend on the batch, as in the paper's code
    keep_hits: also keep hits, under their own state with the borrowed neighbours, as the paper's code does
    capacity: the largest number of states in a scope; the oldest are dropped
    whole_states: compare decoder states before a PCA, as the paper's code does; otherwise compare them as they are
        searched
    """

    threshold: float
    scope: Literal["sentence", "batch"] = "sentence"
    keep_hits: bool = False
    capacity: int = 4096
    whole_states: bool = False

    def __post_init__(self) -> None:
        sound = 0 <= self.threshold < float("inf")
        check(sound, f"the cache's threshold must be a number of at least 0, got {self.threshold}")
        check(self.scope in ("sentence", "batch"), f"cache scope must be 'sentence' or 'batch', got {self.scope!r}")
        check(1 <= self.capacity <= _MAX_COUNT, f"the cache's capacity must be at least 1, got {self.capacity}")

    def signature(self) -> str:
        """Identifies the cache in the signature of a published score."""
        scope = "" if self.scope == "sentence" else "+batch"
        kinds = f"{'+hits' if self.keep_hits else ''}{'+states' if self.whole_states else ''}"
        return f"cache:{self.threshold:.4g}{scope}{kinds}"


@dataclass(frozen=True, slots=True)
class Fading:
    """How λ fades if the memory has nothing similar. Distances are Euclidean, to the nearest entry of a step.

        λ = weight · sigmoid((scale - d) / width) · sigmoid((sentence_scale - m) / sentence_width) · c

    d is the distance of the step, and m is the mean distance over the t steps of the sentence so far and all its beams:
    in text of another kind, all steps are far. (With a mean for each beam, hypotheses that follow the memory would
    escape.) At the beginning little is known, so c = 1 - min(1, d / scale) / (t + 1). If the memory holds the very
    state of a step, this formula does not apply; see `DistanceCombiner`.
    """

    scale: float
    width: float
    sentence_scale: float
    sentence_width: float

    def __post_init__(self) -> None:
        check(self.width > 0 and self.sentence_width > 0, f"widths of fading must be above 0, got {self}")

    def signature(self) -> str:
        """Identifies it in the signature of a published score."""
        return f"~{self.scale:.4g}/{self.width:.4g}~{self.sentence_scale:.4g}/{self.sentence_width:.4g}"


@dataclass(frozen=True, slots=True)
class FastConfig:
    """Fast kNN-MT: each sentence is searched in a small store of its own, by cosine distance.

    candidates: c, the number of nearest occurrences of each source token in this store
    any_token: take the nearest among the occurrences of all tokens; Meng et al. take those of the same token
    """

    candidates: int = 512
    any_token: bool = False

    def __post_init__(self) -> None:
        sound = 1 <= self.candidates <= _MAX_COUNT
        check(sound, f"fast must be at least 1 occurrence of each token, got {self.candidates}")

    def signature(self) -> str:
        """Identifies it in the signature of a published score."""
        return f"fast:{self.candidates}{'+any' if self.any_token else ''}"


SearchScope = FastConfig | int | None
"""The entries in which a sentence is searched: those that Fast kNN-MT chooses, those of some segments, or all."""


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """How neighbours change the model's distribution.

    k: neighbours per step
    interpolation_weight: λ of equation 3; if it fades, its largest value
    temperature: T of equation 2, for squared L2 distances; with `fast`, for cosine distances
    fading: how λ depends on distance; None keeps it fixed
    use_counts: after pruning, an entry weighs as much as the entries that were merged into it
    gate: α; the store's gate predicts λ, and steps whose λ is at most α are not searched; None for no gate
    fast: search each sentence in a small store of its own; None searches the whole store
    segments: search each sentence in this many segments of the memory, those that cover its source best; None searches
        the whole store
    forms: give the model the source that the memory holds, if a text differs from it only in a final mark, capitals or
        white space
    """

    k: int
    interpolation_weight: float
    temperature: float
    fading: Fading | None = None
    use_counts: bool = True
    cache: CacheConfig | None = None
    gate: float | None = None
    fast: FastConfig | None = None
    forms: bool = True
    segments: int | None = None

    def __post_init__(self) -> None:
        check(self.k >= 1, f"k must be at least 1, got {self.k}")
        check(self.k <= MAX_NEIGHBOURS, f"k must be at most {MAX_NEIGHBOURS:,}, got {self.k}")
        weight = self.interpolation_weight
        check(0 <= weight < 1, f"interpolation_weight must be at least 0 and below 1, got {weight}")
        check(self.temperature > 0, f"temperature must be above 0, got {self.temperature}")
        sound = _MIN_TEMPERATURE <= self.temperature <= _MAX_TEMPERATURE
        bounds = f"between {_MIN_TEMPERATURE:g} and {_MAX_TEMPERATURE:g}"
        check(sound, f"temperature must lie {bounds}, got {self.temperature}")
        sound = self.gate is None or 0 <= self.gate < 1
        check(sound, f"gate must be a threshold of λ, at least 0 and below 1, got {self.gate}")
        check(
            self.fast is None or self.gate is None,
            "a gate needs search of the whole store, but fast searches small stores: give only one of them",
        )
        check(
            self.fast is None or self.cache is None,
            "a cache needs search of the whole store, but fast searches small stores: give only one of them",
        )

        if self.segments is not None:
            check(
                1 <= self.segments <= MAX_SEGMENTS,
                f"segments must lie between 1 and {MAX_SEGMENTS:,}, got {self.segments}",
            )
            check(
                self.gate is None and self.cache is None and self.fast is None,
                "gate, cache and fast do not work with segments: leave them out, or search the whole store",
            )

    @property
    def scope(self) -> SearchScope:
        """The entries in which a sentence is searched."""
        return self.segments if self.fast is None else self.fast

    @property
    def fades(self) -> bool:
        """Whether λ depends on distance."""
        return self.fading is not None and self.interpolation_weight > 0

    @property
    def squared_temperature(self) -> float:
        """T for squared distances, as searches return them; for unit vectors these are 2 (1 - cosine)."""
        return self.temperature if self.fast is None else 2 * self.temperature

    @property
    def in_words(self) -> str:
        """k, T and λ, for messages."""
        most = "λ at most" if self.fades else "λ"
        return f"k {self.k}, T {self.temperature:.4g}, {most} {self.interpolation_weight:.4g}"

    def signature(self) -> str:
        """Identifies the retrieval in the signature of a published score."""
        fading = self.fading.signature() if self.fading else ""
        weight = f"{self.interpolation_weight:.4g}{fading}" if self.gate is None else "predicted"
        parts = [f"k:{self.k}", f"lambda:{weight}", f"T:{self.temperature:.4g}"]
        parts += [] if self.use_counts else ["counts:no"]
        parts += [] if self.forms else ["forms:no"]
        parts += [self.fast.signature()] if self.fast else []
        parts += [] if self.segments is None else [f"segments:{self.segments}"]
        parts += [self.cache.signature() if self.cache else "cache:no"]
        return "|".join([*parts, *([] if self.gate is None else [f"gate:{self.gate:.4g}"])])


ExactMatches = Literal["use", "prefer", "ignore"]


@dataclass(frozen=True, slots=True)
class MatchConfig:
    """Which matches are used instead of a decoded translation.

    exact: "use" takes every exact match; "prefer" takes a match if the memory has one target for the text, in the same
        context, with the text's placeholders; "ignore" takes none
    threshold: fuzzy matches with at least this score, in percent, are repaired; 100 repairs none
    """

    exact: ExactMatches = "ignore"
    threshold: int = 100

    def __post_init__(self) -> None:
        modes = get_args(ExactMatches)
        check(self.exact in modes, f"exact_matches must be one of {', '.join(modes)}, got {self.exact!r}")
        is_percentage = isinstance(self.threshold, int) and 1 <= self.threshold <= 100
        check(is_percentage, f"match_threshold must be a percentage from 1 to 100, got {self.threshold!r}")
        check(
            self.exact != "ignore" or self.threshold == 100,
            f"match_threshold {self.threshold} takes fuzzy matches, but exact_matches='ignore' takes none: set "
            "exact_matches to 'use' or 'prefer'",
        )
