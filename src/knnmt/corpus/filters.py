"""Filters for pairs that teach little or mislead: overlong, badly matched, untranslated, repeated."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from knnmt.config import check
from knnmt.corpus.pairs import SegmentPair


@dataclass(frozen=True, slots=True)
class FilterConfig:
    """Which pairs stay; by default, all of them.

    `max_characters` limits each side, and `max_ratio` the length of the longer side divided by the shorter, in
    characters. With `copies` off, pairs with equal sides (ignoring white space around them) are left out. With
    `duplicates` off, pairs that came before are left out.
    """

    max_characters: int | None = None
    max_ratio: float | None = None
    copies: bool = True
    duplicates: bool = True

    def __post_init__(self) -> None:
        check(
            self.max_characters is None or self.max_characters >= 1,
            f"max_characters must be at least 1, got {self.max_characters}",
        )
        check(self.max_ratio is None or self.max_ratio >= 1, f"max_ratio must be at least 1, got {self.max_ratio}")


def filter_pairs(pairs: Iterable[SegmentPair], config: FilterConfig, dropped: Counter[str]) -> Iterator[SegmentPair]:
    """The pairs that pass, in order. The others are counted in `dropped` under the first reason that applies.

    Only a hash of 8 bytes is kept for each pair. Among a hundred million pairs, the chance that any two different ones
    count as the same is about one in four thousand.
    """
    seen: set[int] = set()
    for pair in pairs:
        reason = _reason_against(pair, config)
        if reason is None and not config.duplicates:
            known = fingerprint(pair)
            reason = "duplicate" if known in seen else None
            seen.add(known)
        if reason is None:
            yield pair
        else:
            dropped[reason] += 1


def _reason_against(pair: SegmentPair, config: FilterConfig) -> str | None:
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    if config.max_characters is not None and longer > config.max_characters:
        return f"longer than {config.max_characters} characters"
    if config.max_ratio is not None and longer > config.max_ratio * shorter:
        return f"length ratio above {config.max_ratio:g}"
    if not config.copies and pair.source.strip() == pair.target.strip():
        return "copy of the source"
    return None


def fingerprint(pair: SegmentPair) -> int:
    """Equal for pairs with the same source and target, whatever their origin."""
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    text = f"{len(pair.source)} {pair.source}{pair.target}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
