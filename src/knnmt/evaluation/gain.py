"""The gain of a store over the model alone, on text that it does not hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import spread
from knnmt.datastore.overlap import unseen
from knnmt.errors import KnnmtWarning
from knnmt.evaluation.certainty import certainty_of
from knnmt.evaluation.scoring import Scores, score
from knnmt.fitting.certainty import Certainty
from knnmt.fitting.development import search_text
from knnmt.fitting.likelihood import Positions
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator


@dataclass(frozen=True, slots=True)
class Gain:
    """The model alone and with a store, at the store's own settings.

    pairs: number of measured pairs
    known: number of pairs that were left out, because the store holds their source or target
    base_loss, loss: of their tokens, in nats
    translated: number of translated pairs; without any, there are no scores
    """

    pairs: int
    known: int
    base_loss: float
    loss: float
    translated: int = 0
    base_bleu: float = 0.0
    bleu: float = 0.0
    base_chrf: float = 0.0
    chrf: float = 0.0

    @property
    def is_worse(self) -> bool:
        """Whether the store is worse than the model alone: by both scores, or by perplexity if there are none."""
        if self.translated:
            return self.bleu < self.base_bleu and self.chrf < self.base_chrf
        return self.loss > self.base_loss

    def in_words(self) -> list[str]:
        """Lines for people. The first says so if the store makes things worse."""
        known = f" ({self.known:,} known by source or target not counted)" if self.known else ""
        lines = [
            f"perplexity {math.exp(self.base_loss):.2f} for the model alone, {math.exp(self.loss):.2f} with the store, "
            f"on {self.pairs:,} pairs new to it{known}"
        ]
        if self.translated:
            lines.append(
                f"BLEU       {self.base_bleu:.1f} alone, {self.bleu:.1f} with the store; chrF {self.base_chrf:.1f}, "
                f"{self.chrf:.1f}; on {self.translated:,} of these pairs"
            )
        if self.is_worse:
            lines.insert(
                0,
                "worse      the store makes translations of the held-out text worse. Perhaps its pairs are misaligned "
                "or in other languages than stated, or the tokenizer of the model does not belong to its weights",
            )
        return lines


def measure_gain(
    translator: Translator,
    path: Path,
    pairs: Sequence[SegmentPair],
    sample: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    positions: Positions | None = None,
) -> tuple[Gain, Certainty | None] | None:
    """The perplexity of pairs, the scores of at most `sample` translations, and the certainty of such translations.

    None if the store holds all of the pairs.

    `progress` is called with the amount done and the total.
    positions: the search results for the pairs that are new to the store, if they are already known
    """
    memory = translator.memories.open(path)
    new = unseen(memory.opened.datastore, pairs)
    if not new:
        return None
    some = spread(new, sample)
    total = 2 * len(new) + 2 * len(some)
    config = memory.resolve()
    if positions is None:
        positions = search_text(
            translator.engine, memory.opened, new, progress=lambda done, _rows: progress(done, total), way=config.way
        ).positions()
    losses = positions.loss(None), positions.loss(config)
    memory.opened.datastore.require_unchanged()
    known = len(pairs) - len(new)
    if not some:
        return Gain(len(new), known, *losses), None
    scores: list[Scores] = []
    translations: list[Translation] = []
    for datastore in (None, path):
        translations = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KnnmtWarning)  # of single lines, which the score counts anyway
            for each in translator.stream([pair.source for pair in some], datastore=datastore, settings="raw"):
                translations.append(each)
                progress(2 * len(new) + len(scores) * len(some) + len(translations), total)
        language = memory.opened.datastore.manifest.target_language
        scores.append(score([each.text for each in translations], [pair.target for pair in some], language))
    base, own = scores
    values = (base.bleu.value, own.bleu.value, base.chrf.value, own.chrf.value)
    gain = Gain(len(new), known, *losses, len(some), *values)
    return gain, certainty_of(translations, [pair.target for pair in some], config)
