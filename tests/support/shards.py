"""Text of shards, how it is searched, and what shards are said to have left out."""

from __future__ import annotations

import random

from knnmt import RetrievalSettings, SegmentPair, Translation
from knnmt.errors import ShardWarning

SETTINGS = RetrievalSettings(k=4, temperature=5.0, interpolation_weight=0.6, segments=6, forms=False)


def made_pairs(count: int, seed: int = 3) -> list[SegmentPair]:
    """Sentences of few words in any order, some of them again with the same or another target."""
    chance = random.Random(seed)
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st", "uv", "wx"]
    sources = [" ".join(chance.choices(words, k=chance.randint(1, 7))) for _ in range(count)]
    sources = [chance.choice(sources) if chance.random() < 0.2 else each for each in sources]
    return [SegmentPair(each, each[::-1][: chance.randint(2, 20)], f"own.tsv#{n}") for n, each in enumerate(sources)]


def of_shards(translation: Translation) -> list[str]:
    return [each.message for each in translation.warnings if each.kind is ShardWarning]
