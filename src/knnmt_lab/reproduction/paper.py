"""The numbers of every table of Martins, Marinho & Martins (2022), Efficient Machine Translation Domain Adaptation.

They have the names of our rows without their block. Its two figures give no numbers; about speed, the text says "about
twice", and that the cache saves 57 % of the searches.
"""

from __future__ import annotations

DOMAINS = ("medical", "law", "it", "koran")
BASE, KNN, FAST = "base", "knn", "fast-512"

# Medical, Law, IT, Koran, and the average as printed.
BLEU: dict[str, tuple[float, ...]] = {
    BASE: (40.01, 45.64, 37.91, 16.35, 34.98),
    KNN: (54.47, 61.23, 45.96, 21.02, 45.67),
    FAST: (52.90, 55.71, 44.73, 21.29, 43.66),
    "pca+cache": (53.58, 58.57, 46.29, 20.67, 44.78),
    "pca+pruning": (53.23, 60.38, 45.16, 20.52, 44.82),
    "pca+cache+pruning": (51.90, 57.82, 44.44, 20.11, 43.57),
    "pruning-1": (53.60, 60.23, 45.03, 20.81, 44.92),
    "pruning-2": (52.95, 59.40, 44.76, 20.12, 44.31),
    "pruning-5": (51.63, 57.55, 44.07, 19.29, 43.14),
    "pca-512": (55.06, 62.04, 46.98, 21.24, 46.33),
    "pca-256": (54.52, 61.84, 46.68, 21.57, 46.15),
    "pca-128": (53.94, 61.17, 45.46, 21.35, 45.48),
    "adaptive-0.25": (45.52, 49.91, 37.97, 16.36, 37.44),
    "adaptive-0.5": (52.84, 59.36, 38.58, 18.08, 42.22),
    "adaptive-0.75": (53.90, 60.87, 43.05, 19.91, 44.43),
    "cache-2": (54.47, 61.23, 45.93, 20.98, 45.65),
    "cache-4": (54.17, 61.10, 46.07, 21.00, 45.58),
    "cache-6": (53.30, 59.12, 45.39, 20.67, 44.62),
    "cache-8": (30.06, 23.01, 25.53, 16.08, 23.67),
}
# Of wmt20-comet-da, not normalised: not comparable with the values of later models.
COMET: dict[str, tuple[float, ...]] = {
    BASE: (0.4702, 0.5770, 0.3942, -0.0097, 0.3579),
    KNN: (0.5760, 0.6781, 0.5163, 0.0480, 0.4546),
    FAST: (0.5293, 0.5944, 0.5445, -0.0455, 0.4057),
    "cache-6": (0.5625, 0.6403, 0.5085, 0.0346, 0.4365),
    "pca+cache": (0.5457, 0.6379, 0.5311, -0.0021, 0.4282),
    "pca+pruning": (0.5658, 0.6639, 0.4981, 0.0298, 0.4394),
    "pca+cache+pruning": (0.5513, 0.6260, 0.4909, -0.0052, 0.4158),
}
ENTRIES: dict[str, tuple[int, ...]] = {
    KNN: (6_903_141, 19_061_382, 3_602_862, 524_374),
    "pruning-1": (4_780_514, 13_130_326, 2_641_709, 400_385),
    "pruning-2": (4_039_432, 11_103_775, 2_303_808, 353_007),
    "pruning-5": (3_084_106, 8_486_551, 1_852_191, 290_192),
}
# Percent of the steps that search; for caches without the first step of each batch.
SEARCHED: dict[str, tuple[int, ...]] = {
    KNN: (100, 100, 100, 100),
    "adaptive-0.25": (78, 73, 38, 4),
    "adaptive-0.5": (96, 96, 60, 61),
    "adaptive-0.75": (98, 99, 92, 91),
    "cache-2": (59, 51, 67, 64),
    "cache-4": (50, 42, 57, 53),
    "cache-6": (43, 35, 49, 45),
    "cache-8": (26, 16, 29, 31),
}
# k, λ, T of each domain.
SETTINGS: dict[str, tuple[tuple[int, float, float], ...]] = {
    KNN: ((8, 0.7, 10), (8, 0.8, 10), (8, 0.7, 10), (8, 0.6, 100)),
    FAST: ((16, 0.7, 0.015), (32, 0.6, 0.015), (8, 0.6, 0.02), (16, 0.6, 0.05)),
    "cache-6": ((8, 0.7, 10), (8, 0.8, 10), (8, 0.7, 10), (8, 0.6, 100)),
    "pca+cache": ((8, 0.8, 10), (8, 0.8, 10), (8, 0.7, 10), (8, 0.7, 100)),
    "pca+pruning": ((8, 0.7, 10), (8, 0.8, 10), (8, 0.7, 10), (8, 0.7, 100)),
    "pca+cache+pruning": ((8, 0.7, 10), (8, 0.8, 10), (8, 0.7, 10), (8, 0.7, 100)),
}
CACHE_SAVES_PERCENT = 57
DIM = 1024


def place_of(domain: str) -> int | None:
    """The position of a domain in the tuples, whatever the case of its name; None if the paper does not have it."""
    return DOMAINS.index(domain.lower()) if domain.lower() in DOMAINS else None


def kept_percent(name: str, place: int) -> float:
    """The percentage of a domain's entries that pruning keeps."""
    return 100 * ENTRIES[name][place] / ENTRIES[KNN][place]
