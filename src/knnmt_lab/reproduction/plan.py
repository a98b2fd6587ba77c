"""What is reproduced: the rows of the paper's tables in two blocks, so that methods are not confused with indexes.

A, as published: IVFPQ with FAISS's distances, fixed λ, batches of 8, a cache that a batch shares and that keeps hits.
B, ours: two-stage or exact search, λ that fades with distance, a cache for each sentence that keeps only misses.
A20: A, but each code covers as many dimensions as the paper's, and centres are trained as FAISS does by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from knnmt import CacheConfig
from knnmt_lab.checks import check

BLOCKS = ("A", "B")
PARTS = {"A": ("A", "A20"), "B": ("B",)}  # the rows that a requested block adds
ALPHAS = (0.25, 0.5, 0.75)
SHARES = (75, 50, 25)  # percent of the steps at which gates, chance and caches are compared
SEEDS = (1, 2, 3, 4, 5)  # for training and random choices
TAUS = (2, 4, 6, 8, 12)  # the paper's, where its keys break its cache at 8, and where those of the shipped model do
MORE_TAUS = {"": (9, 10, 11), "-misses": (9, 10, 11, 14, 16)}  # so that caches of both kinds have equal shares
PRUNING_KS = (1, 2, 5)
PLAC_K = 4  # as published
SUREST = {"surest-90": 90, "surest-80": 80, "surest-70": 70, "surest": 60}  # percent of the entries that are kept
COMBINERS: dict[str, tuple[str, int | None]] = {  # method and k, by default the method's
    "meta-k": ("knnmt_lab.combiners:MetaK", None),
    "robust": ("robust", None),
    "kernel-smoothed": ("knnmt_lab.combiners:KernelSmoothed", None),
    "robust-fading": ("robust-fading", None),
    "robust-fading-8": ("robust-fading", 8),
}
CANDIDATES = (512, 128)  # c of Fast kNN-MT
_PAPERS_DIMS, _SHORTER_DIMS = (512, 256, 128), (256, 192, 128, 80, 64, 40)  # 80 of 320 is their 256 of 1,024
_CAPACITY = 1 << 16  # states in a batch's cache: all, as in the paper, of 16 sentences of 200 tokens
TOLD_APART = (6, 8, 12)  # τ where the paper's cache starts to lose, or breaks: scope and stored hits are compared
_COMBINED_TAU = {"A": 6, "B": 4}  # the paper's, and the largest that loses nothing with a cache for each sentence
_COMBINED_K = 2
# Rows that the paper does not have, and that only add points to a table.
_REFINING = (
    *("fast-128", "?/pca-192", "?/pca-64", "?/pca-40", "A/cache-[68]-sentence-hits"),
    *("B/cache-[28]", "B/adaptive-*", "B/random-*", "A/cache-9", "A/cache-11", "A/cache-9-misses", "A/cache-11-misses"),
    *(
        "B/kernel-smoothed*",
        "B/surest-*",
        "B/robust-fading-8",
        "B/*@[2-5]",
        "segments-*",
        "A/adaptive-*@[2-5]",
        "A/*-[27]5@[2-5]",
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One system of a block.

    name: of its files, such as "A/cache-6"
    label: in tables
    steps: how its store was made from the full one, such as ("pca256", "prune2")
    alpha: threshold of the gate
    share: percent of the steps for which the threshold is chosen, in place of alpha
    chance: search as many steps as that gate, at random
    published_gate: inputs, network and training of the gate are the authors', and so is the random choice, which is one
        draw for all rows of a step
    seed: of training or random choices
    fast: c of Fast kNN-MT
    segments: how the segments of a sentence are chosen, by a name in `choosers.CHOOSERS`
    segment_count: how many segments are chosen
    fades: whether λ fades; by default it does in B. If it does not, λ and k come from the paper's grid
    uncounted: entries that others were merged into count once, all else being equal
    by_bleu: k and λ are chosen by BLEU, as published
    k_of: the row whose k it has, for speed at equal k
    fidelity_of: the row whose search its own is as close to exact search as, by the number of its probes
    combiner: the name of a trained one in `COMBINERS`
    """

    name: str
    label: str
    steps: tuple[str, ...] = ()
    cache: CacheConfig | None = None
    alpha: float | None = None
    chance: bool = False
    fast: int | None = None
    segments: str | None = None
    segment_count: int = 512
    share: int | None = None
    published_gate: bool = False
    seed: int = 0
    fades: bool | None = None
    uncounted: bool = False
    by_bleu: bool = False
    k_of: str | None = None
    fidelity_of: str | None = None
    combiner: str | None = None

    @property
    def block(self) -> str:
        """A, A20, B, or "" for a system without an index."""
        return self.name.partition("/")[0] if "/" in self.name else ""

    @property
    def as_published(self) -> bool:
        """Whether it is decoded as in the paper."""
        return self.block.startswith("A")

    @property
    def has_fading(self) -> bool:
        return self.block == "B" if self.fades is None else self.fades

    @property
    def has_gate(self) -> bool:
        return self.alpha is not None or self.share is not None

    @property
    def depends_on_batch(self) -> bool:
        """Whether sentences of a batch share something: a cache, or one draw for a step."""
        shares_cache = self.cache is not None and self.cache.scope == "batch"
        return shares_cache or (self.chance and self.published_gate)

    @property
    def needs_alignment(self) -> bool:
        """Whether its store must have what is built for Fast kNN-MT."""
        return self.fast is not None or self.segments == "aligned"

    @property
    def has_store(self) -> bool:
        return self.name != BASE.name

    @property
    def others(self) -> list[str]:
        """The rows that it cannot be made without, of either block."""
        needed = (self.partner if self.chance else None, self.k_of, self.fidelity_of)
        return [name for name in needed if name is not None]

    @property
    def partner(self) -> str:
        """For a random choice: the row with the same rate of searches."""
        return self.name.replace("/random-", "/adaptive-").replace("/chance-", "/gate-")


BASE = Row("base", "Base MT")
BY_SEGMENT = (
    Row("segments", "by segment, 512 as by default", segments="covering"),
    Row("sk-mt", "SK-MT: 16 segments by BM25", segments="bm25"),
)
# Rows that also translate text of other domains, to show what harm a store does.
HARM = (
    *("base", "B/knn-fixed", "B/knn", "segments-128", "segments"),
    *(f"B/{name}" for name in COMBINERS),
)
SEGMENT_COUNTS = (128, 16, 64, 256, 512)  # the first is what the choices below are compared with
SEGMENT_CHOICES = {
    "unigrams": "covering single tokens",
    "bigrams": "covering up to pairs of tokens",
    "covered-once": "what is covered counts no more",
    "not-halved": "what is covered counts in full",
    "few-candidates": "2 candidates for each",
    "many-candidates": "24 candidates for each",
    "aligned": "entries aligned with a word of the sentence alone",
}


def dims_for(dim: int) -> tuple[int, ...]:
    """Dimensions of reduced keys: the paper's if they are shorter than the keys, otherwise some that fit."""
    fitting = _PAPERS_DIMS if dim > _PAPERS_DIMS[0] else tuple(each for each in _SHORTER_DIMS if each < dim)
    return fitting or tuple(each for each in (dim // 2, dim // 4) if each)


def combined_dim(dim: int) -> int:
    """The dimensions of the combinations: 256, as in the paper, if keys have more."""
    dims = dims_for(dim)
    return 256 if 256 in dims else dims[0]


def all_rows(dim: int, blocks: Sequence[str] = BLOCKS) -> list[Row]:
    """Every row for keys of `dim` dimensions; rows that others are compared with come first."""
    rows = [BASE, *(Row(f"fast-{c}", f"Fast kNN-MT, c = {c}", fast=c) for c in CANDIDATES), *BY_SEGMENT]
    for block in blocks:
        for part in PARTS[block]:
            rows += _a20_rows(dim) if part == "A20" else _block_rows(part, dim)
    rows += _by_segment()
    return [row for row in rows if all(name.partition("/")[0] in blocks for name in row.others)]


def _by_segment() -> list[Row]:
    """What the number of segments and each part of their choice is worth."""
    return [
        *(
            Row(f"segments-{count}", f"by segment, {count}", segments="covering", segment_count=count)
            for count in SEGMENT_COUNTS
        ),
        *(
            Row(f"segments-{name}", f"by segment, 128, {told}", segments=name, segment_count=SEGMENT_COUNTS[0])
            for name, told in SEGMENT_CHOICES.items()
        ),
    ]


def _a20_rows(dim: int) -> list[Row]:
    """Whether a gain of PCA comes from the index: without PCA, and with a quarter and an eighth of the dimensions."""
    fewer = [each for each in (dim // 4, dim // 8) if each and dim % 8 == 0 and each % 20 == 0]
    return [Row("A20/knn", "kNN-MT"), *(Row(f"A20/pca-{each}", f"PCA d = {each}", (f"pca{each}",)) for each in fewer)]


def _block_rows(block: str, dim: int) -> list[Row]:
    reduced, merged = f"pca{combined_dim(dim)}", f"prune{_COMBINED_K}"
    cached = replace(_cache(block, _COMBINED_TAU[block]), whole_states=block == "A")
    rows = [Row(f"{block}/knn", "kNN-MT")]
    if block == "B":  # separates the effects of the index and of λ
        rows.append(Row("B/knn-fixed", "kNN-MT, fixed λ", fades=False))
        rows += [
            Row(f"B/{name}{_end(seed)}", _combiner_label(name), combiner=name, seed=seed)
            for seed in SEEDS
            for name in COMBINERS
        ]
    else:
        rows += [
            Row("A/knn-fading", "kNN-MT, λ that fades", fades=True),
            Row("A/knn-bleu", "kNN-MT, k and λ by BLEU", by_bleu=True),
            Row("A/knn-k", "kNN-MT with the k of B", k_of="B/knn-fixed"),
            Row(
                "A/knn-probes",
                "kNN-MT with the k of B and probes for its fidelity",
                k_of="B/knn-fixed",
                fidelity_of="B/knn-fixed",
            ),
        ]
    rows += [Row(f"{block}/cache-{tau}", f"cache τ = {tau}", cache=_cache(block, tau)) for tau in TAUS]
    rows += [
        Row(f"{block}/pca+cache", "PCA + cache", (reduced,), cached),
        Row(f"{block}/pca+pruning", "PCA + pruning", (reduced, merged)),
        Row(f"{block}/pca+cache+pruning", "PCA + cache + pruning", (reduced, merged), cached),
    ]
    rows += [Row(f"{block}/pca-{each}", f"PCA d = {each}", (f"pca{each}",)) for each in dims_for(dim)]
    rows += [Row(f"{block}/pruning-{k}", f"pruning k = {k}", (f"prune{k}",)) for k in PRUNING_KS]
    if block == "B":
        rows.append(Row("B/plac", f"PLAC k = {PLAC_K}", (f"plac{PLAC_K}",)))
        rows += [
            Row(f"B/{name}", f"{100 - kept} % where the model is surest left out", (f"surest{kept}",))
            for name, kept in SUREST.items()
        ]
    rows += _caches_as_published() if block == "A" else _caches_of_others()
    return rows + (_gates_as_published() if block == "A" else _gates())


def _combiner_label(name: str) -> str:
    k = COMBINERS[name][1]
    return f"{name if k is None else f'{COMBINERS[name][0]}, k = {k}'}, trained"


def _caches_as_published() -> list[Row]:
    """The paper's cache without each of its differences from ours, and both kinds at more thresholds."""
    rows = [
        Row(f"A/cache-{tau}-{name}", f"cache τ = {tau}, {label}", cache=CacheConfig(tau, scope, hits, _CAPACITY))  # type: ignore[arg-type]
        for tau in TOLD_APART
        for name, label, scope, hits in (
            ("misses", "batch, misses only", "batch", False),
            ("sentence-hits", "sentence, hits too", "sentence", True),
            ("sentence", "sentence, misses only", "sentence", False),
        )
    ]
    for kind, taus in MORE_TAUS.items():
        label = ", batch, misses only" if kind else ""
        rows += [
            Row(f"A/cache-{tau}{kind}", f"cache τ = {tau}{label}", cache=CacheConfig(tau, "batch", not kind, _CAPACITY))
            for tau in taus
        ]
    return [*rows, Row("A/cache-6-fading", "cache τ = 6, λ that fades", cache=_cache("A", 6), fades=True)]


def _caches_of_others() -> list[Row]:
    """The paper's cache with our index and both kinds of λ; and entries that count once after pruning."""
    published = _cache("A", 6)
    return [
        Row("B/cache-6-published", "cache τ = 6 as published", cache=published),
        Row("B/cache-6-published-fixed", "cache τ = 6 as published, fixed λ", cache=published, fades=False),
        *(
            Row(f"B/pruning-{k}-uncounted", f"pruning k = {k}, uncounted", (f"prune{k}",), uncounted=True)
            for k in (2, 5)
        ),
    ]


def _gates() -> list[Row]:
    rows = []
    for alpha in ALPHAS:
        rows.append(Row(f"B/adaptive-{alpha}", f"adaptive α = {alpha}", alpha=alpha))
        rows.append(Row(f"B/random-{alpha}", f"as many by chance, α = {alpha}", alpha=alpha, chance=True))
    return rows


def _gates_as_published() -> list[Row]:
    """The published gate at the paper's α; then gates and chance at equal shares of searches."""
    rows = [
        Row(f"A/adaptive-{alpha}{_end(seed)}", f"adaptive α = {alpha}", alpha=alpha, published_gate=True, seed=seed)
        for alpha in ALPHAS
        for seed in SEEDS
    ]
    for share in SHARES:
        for seed in SEEDS:
            end = _end(seed)
            asked: dict[str, Any] = {"share": share, "seed": seed}
            rows += [
                Row(f"A/gate-{share}{end}", f"gate as published, {share} % of steps", published_gate=True, **asked),
                Row(f"A/chance-{share}{end}", "as many steps by chance", published_gate=True, chance=True, **asked),
                Row(f"A/own-gate-{share}{end}", f"our gate, {share} % of steps", **asked),
            ]
    return rows


def _end(seed: int) -> str:
    """Of the name of a row that has several seeds."""
    return "" if seed == SEEDS[0] else f"@{seed}"


def _cache(block: str, tau: float) -> CacheConfig:
    return CacheConfig(tau, "batch", True, _CAPACITY) if block == "A" else CacheConfig(tau)


def chosen_rows(
    rows: Sequence[Row], patterns: Sequence[str], without: Sequence[str] = (), brief: bool = False
) -> list[Row]:
    """Rows whose names fit a pattern, or all without patterns. A random choice brings its partner.

    Rows come in the order of the patterns, so that what matters most can be named first.
    brief: without those that only refine a table
    """
    for pattern in (*patterns, *without):
        check(
            any(fnmatchcase(row.name, pattern) for row in rows),
            f"there is no system {pattern!r}; the systems are {', '.join(row.name for row in rows)}",
        )
    left_out = [*without, *(_REFINING if brief else ())]
    named = [row.name for row in rows if _fits(row, patterns or ["*"]) and not _fits(row, left_out)]
    places: dict[str, int] = {}
    for row in rows:
        if row.name in named:
            place = next(number for number, each in enumerate(patterns or ["*"]) if _fits(row, [each]))
            for name in (row.name, *row.others):
                places[name] = min(place, places.get(name, place))
    return sorted((row for row in rows if row.name in places), key=lambda row: places[row.name])


def _fits(row: Row, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(row.name, pattern) for pattern in patterns)


def speed_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of the paper's two figures of speed:

    baselines and combinations as published, and the extremes of ours.
    """
    names = {
        "base",
        "segments",
        f"fast-{CANDIDATES[0]}",
        *(f"{block}/cache-{tau}" for block, tau in _COMBINED_TAU.items()),
    }
    names |= {f"A/{each}" for each in ("knn", "pca+cache", "pca+pruning", "pca+cache+pruning")}
    names |= {"A/knn-k", "A/knn-probes", *(f"B/{each}" for each in ("knn", "knn-fixed", "pca+cache+pruning"))}
    reduced = {row.steps for row in rows if row.name == "A/pca+cache"}
    return [row for row in rows if row.name in names or (row.name.startswith("A/pca-") and row.steps in reduced)]
