"""The settings of a tuning: how it chooses, what it may lose, and under which names it saves."""

from __future__ import annotations

from dataclasses import dataclass

from knnmt.config import MAX_SEGMENTS, FastConfig, check
from knnmt.extensions import NETWORKS, registered
from knnmt.retrieval.profiles import BY_BLEU, FAST, SEGMENTS, TUNED, names_of_tuning
from knnmt.retrieval.settings import TRAINED_COMBINERS

METHODS = ("likelihood", "bleu")
KS = (4, 8, 16, 32, 64)
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(19))  # 0 to 0.9
SAMPLE = 200
CACHE_LOSS = 0.01
BLEU_LOSS = 0.1


@dataclass(frozen=True, slots=True)
class TuningConfig:
    """The options of a tuning.

    method: "likelihood", or "bleu" for the paper's search over k and fixed λ
    profile: the name to save under, with NAME-fixed and, for the whole store, NAME-cache (for knn: cache). A given name
        becomes the store's default. The default is segments, and knn for `whole`, which also become the store's
        default; it is bleu for the method "bleu" and fast for `fast`, which do not
    temperature: T for the method "bleu"; by default the best by likelihood
    confirm: let BLEU choose among the best by likelihood and confirm τ of the cache, and report BLEU
    ks, weights: for likelihood, the k and the fixed λ to try
    sample: number of pairs to translate for each BLEU; by default 200
    cache_loss: the cache may lose at most this many nats per token
    bleu_loss: a confirmed cache may lose at most this much BLEU; by default 0.1
    fast: tune Fast kNN-MT with this many candidates instead
    segments: tune search by this many segments; by default 512
    whole: tune search of the whole store instead; the method "bleu" also does that
    combiner, gate: for the method "bleu", the names of your own ones, "package.module:Name". A profile cannot name
        them, so the saved profile does not become the default
    """

    method: str = "likelihood"
    profile: str | None = None
    temperature: float | None = None
    confirm: bool = False
    ks: tuple[int, ...] = KS
    weights: tuple[float, ...] = WEIGHTS
    sample: int | None = None
    cache_loss: float = CACHE_LOSS
    bleu_loss: float | None = None
    fast: FastConfig | None = None
    segments: int | None = None
    whole: bool = False
    combiner: str | None = None
    gate: str | None = None

    def __post_init__(self) -> None:
        check(self.method in METHODS, f"--method must be {' or '.join(METHODS)}, got {self.method!r}")
        check(
            bool(self.ks) and all(1 <= k <= max(KS) for k in self.ks),
            f"ks: each must lie between 1 and {max(KS)}, got {self.ks}",
        )
        check(
            bool(self.weights) and all(0 <= weight < 1 for weight in self.weights),
            f"weights: each must be at least 0 and below 1, got {self.weights}",
        )
        check(self.sample is None or self.sample >= 1, f"sample must be at least 1, got {self.sample}")
        by_bleu = self.method == "bleu"
        refuse_idle(self.temperature is not None and not by_bleu, "--temperature is for --method bleu")
        for part in self.plugins:
            refuse_idle(
                not by_bleu,
                f"--{part} is for --method bleu; likelihood uses knnmt's own weights",
            )
            check(
                self.profile not in (TUNED, SEGMENTS),
                f"a profile does not name a {part}: give another --profile than {self.profile}, which commands use by "
                "default",
            )
        check(
            self.combiner is None or self.combiner not in (*TRAINED_COMBINERS, *registered(NETWORKS)),
            f"the combiner {self.combiner} has its own k, T and λ: `knnmt train-combiner STORE --dev DEV --method "
            f"{self.combiner}` chooses them",
        )
        refuse_idle(self.sample is not None and not self.scores, "--sample is for --confirm or --method bleu")
        confirms = self.confirm and self.searches_whole
        refuse_idle(self.bleu_loss is not None and not confirms, "--bleu-loss is for --whole --confirm")
        own = "--fast" if self.fast is not None else "--segments"
        refuse_idle(
            (self.fast is not None or self.segments is not None) and by_bleu,
            f"{own} tunes k, T and λ by likelihood: leave --method bleu out",
        )
        ways = [
            name for name, given in (("fast", self.fast), ("segments", self.segments), ("whole", self.whole)) if given
        ]
        check(len(ways) < 2, f"--{' and --'.join(ways)} are different kinds of search: give only one of them")
        sound = self.segments is None or 1 <= self.segments <= MAX_SEGMENTS
        check(sound, f"segments must lie between 1 and {MAX_SEGMENTS:,}, got {self.segments}")
        _ = self.names  # refuses a name that a profile cannot have

    @property
    def plugins(self) -> dict[str, str]:
        """The names of your own combiner and gate, if given."""
        given = {"combiner": self.combiner, "gate": self.gate}
        return {part: name for part, name in given.items() if name is not None}

    @property
    def searches_whole(self) -> bool:
        """Whether the whole store is searched."""
        return self.fast is None and (self.whole or self.method == "bleu")

    @property
    def scores(self) -> bool:
        """Whether BLEU takes part in the choice."""
        return self.confirm or self.method == "bleu"

    @property
    def scored_pairs(self) -> int:
        """How many pairs are translated for each BLEU."""
        return SAMPLE if self.sample is None else self.sample

    @property
    def most_bleu_lost(self) -> float | None:
        """The BLEU that a cache may lose; None if it is not confirmed."""
        return None if not self.confirm else BLEU_LOSS if self.bleu_loss is None else self.bleu_loss

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the profiles: the chosen settings, those with a fixed λ, and those with a cache."""
        return names_of_tuning(self._usual_name if self.profile is None else self.profile)

    @property
    def may_become_default(self) -> bool:
        """Whether the chosen settings become the store's default if they are better than the earlier ones."""
        return not self.plugins and (self.profile is not None or self._usual_name in (TUNED, SEGMENTS))

    @property
    def _usual_name(self) -> str:
        if self.fast:
            return FAST
        return BY_BLEU if self.method == "bleu" else TUNED if self.searches_whole else SEGMENTS


def refuse_idle(idle: bool, problem: str) -> None:
    """Refuse a setting that would have no effect."""
    check(not idle, f"{problem}: it would have no effect here")
