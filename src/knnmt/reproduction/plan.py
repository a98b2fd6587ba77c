"""What is reproduced: the rows of the paper's tables in two blocks, so that methods are not confused with indexes.

A, as published: IVFPQ with FAISS's distances, fixed λ, batches of 8, a cache that a batch shares and that keeps hits.
B, ours: two-stage search or exact search, λ that fades with distance, a cache of each sentence that keeps misses only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from knnmt.config import CacheConfig, check
from knnmt.retrieval.settings import TRAINED_COMBINERS

BLOCKS = ("A", "B")
ALPHAS = (0.25, 0.5, 0.75)
TAUS = (2, 4, 6, 8, 12)  # the paper's, whose keys break its cache at 8, and where those of the shipped model do
PRUNING_KS = (1, 2, 5)
PLAC_K = 4  # as published
CANDIDATES = (512, 128)  # c of Fast kNN-MT
_PAPERS_DIMS, _SHORTER_DIMS = (512, 256, 128), (256, 192, 128, 64)
_CAPACITY = 1 << 16  # states that a batch's cache keeps: all, as the paper's, of 16 sentences of 200 tokens
TOLD_APART = (6, 8, 12)  # τ where the paper's cache begins to lose, or breaks: scope and stored hits are told apart
_COMBINED_TAU = {"A": 6, "B": 4}  # the paper's, and what loses nothing with a cache of a sentence
_COMBINED_K = 2
# Rows that the paper has not, and that add points to a table whose ends others show.
_REFINING = (
    *("fast-128", "?/pca-192", "?/pca-64", "A/cache-[68]-sentence-hits"),
    *("B/cache-[28]", "B/adaptive-*", "B/random-*", "B/kernel-smoothed"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One system of a block.

    name: of its files, "A/cache-6"; label: in tables
    steps: what its store was made by from the full one, such as ("pca256", "prune2")
    alpha: threshold of the gate; chance: search as many steps as that gate does, whichever
    fast: c of Fast kNN-MT
    segments: what chooses the segments that a sentence is searched in: "covering", or "bm25" alone
    fixed: λ and k from the paper's grid, whatever the block has
    combiner: the method of a trained one
    """

    name: str
    label: str
    steps: tuple[str, ...] = ()
    cache: CacheConfig | None = None
    alpha: float | None = None
    chance: bool = False
    fast: int | None = None
    segments: str | None = None
    fixed: bool = False
    combiner: str | None = None

    @property
    def block(self) -> str:
        """A, B, or "" for what has no index."""
        return self.name.partition("/")[0] if "/" in self.name else ""

    @property
    def has_store(self) -> bool:
        return self.name != BASE.name

    @property
    def partner(self) -> str:
        """Of a choice by chance: the row whose rate of searches it has."""
        return self.name.replace("/random-", "/adaptive-")


BASE = Row("base", "Base MT")
BY_SEGMENT = (
    Row("segments", "by segment, as many as held-out text says", segments="covering"),
    Row("sk-mt", "SK-MT: 16 segments by BM25", segments="bm25"),
)


def dims_for(dim: int) -> tuple[int, ...]:
    """Dimensions that keys are reduced to: the paper's where they are shorter than the keys, else some that fit."""
    fitting = _PAPERS_DIMS if dim > _PAPERS_DIMS[0] else tuple(each for each in _SHORTER_DIMS if each < dim)
    return fitting or tuple(each for each in (dim // 2, dim // 4) if each)


def combined_dim(dim: int) -> int:
    """The dimensions of the combinations: 256, as in the paper, where there are more."""
    dims = dims_for(dim)
    return 256 if 256 in dims else dims[0]


def all_rows(dim: int, blocks: Sequence[str] = BLOCKS) -> list[Row]:
    """Every row for keys of `dim` dimensions, those first that others are compared with."""
    rows = [BASE, *(Row(f"fast-{c}", f"Fast kNN-MT, c = {c}", fast=c) for c in CANDIDATES), *BY_SEGMENT]
    for block in blocks:
        rows += _block_rows(block, dim)
    return rows


def _block_rows(block: str, dim: int) -> list[Row]:
    reduced, merged = f"pca{combined_dim(dim)}", f"prune{_COMBINED_K}"
    cached = _cache(block, _COMBINED_TAU[block])
    rows = [Row(f"{block}/knn", "kNN-MT")]
    if block == "B":  # tells the index and λ apart
        rows.append(Row("B/knn-fixed", "kNN-MT, fixed λ", fixed=True))
        rows += [Row(f"B/{method}", f"{method}, trained", combiner=method) for method in TRAINED_COMBINERS]
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
    for alpha in ALPHAS:
        rows.append(Row(f"{block}/adaptive-{alpha}", f"adaptive α = {alpha}", alpha=alpha))
        rows.append(Row(f"{block}/random-{alpha}", f"as many by chance, α = {alpha}", alpha=alpha, chance=True))
    if block == "A":
        rows += [
            Row(f"A/cache-{tau}-{name}", f"cache τ = {tau}, {label}", cache=CacheConfig(tau, scope, hits, _CAPACITY))  # type: ignore[arg-type]
            for tau in TOLD_APART
            for name, label, scope, hits in (
                ("misses", "batch, misses only", "batch", False),
                ("sentence-hits", "sentence, hits too", "sentence", True),
                ("sentence", "sentence, misses only", "sentence", False),
            )
        ]
    return rows


def _cache(block: str, tau: float) -> CacheConfig:
    return CacheConfig(tau, "batch", True, _CAPACITY) if block == "A" else CacheConfig(tau)


def chosen_rows(
    rows: Sequence[Row], patterns: Sequence[str], without: Sequence[str] = (), brief: bool = False
) -> list[Row]:
    """Rows whose names fit a pattern, all where there are no patterns; with a choice by chance its partner comes.

    brief: without those that only refine a table
    """
    for pattern in (*patterns, *without):
        check(
            any(fnmatchcase(row.name, pattern) for row in rows),
            f"no system is called {pattern!r}; there are {', '.join(row.name for row in rows)}",
        )
    left_out = [*without, *(_REFINING if brief else ())]
    named = [row.name for row in rows if _fits(row, patterns or ["*"]) and not _fits(row, left_out)]
    wanted = {*named, *(row.partner for row in rows if row.chance and row.name in named)}
    return [row for row in rows if row.name in wanted]


def _fits(row: Row, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(row.name, pattern) for pattern in patterns)


def speed_rows(rows: Sequence[Row]) -> list[Row]:
    """Those of the paper's two figures of speed: baselines and combinations as published, and the ends of ours."""
    names = {
        "base",
        "segments",
        f"fast-{CANDIDATES[0]}",
        *(f"{block}/cache-{tau}" for block, tau in _COMBINED_TAU.items()),
    }
    names |= {f"A/{each}" for each in ("knn", "pca+cache", "pca+pruning", "pca+cache+pruning")}
    names |= {f"B/{each}" for each in ("knn", "pca+cache+pruning")}
    reduced = {row.steps for row in rows if row.name == "A/pca+cache"}
    return [row for row in rows if row.name in names or (row.name.startswith("A/pca-") and row.steps in reduced)]
