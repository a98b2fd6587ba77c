"""The gain of a store over the model alone, on text that it does not hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from knnmt.adapting.certainty import certainty_of
from knnmt.adapting.development import search_text
from knnmt.calibration.certainty import Certainty
from knnmt.calibration.likelihood import Positions
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import spread
from knnmt.datastore.overlap import unseen
from knnmt.errors import KnnmtWarning
from knnmt.evaluation.scoring import compare
from knnmt.progress import ignore
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator

_SIGNIFICANT = 0.05
_UNRELATED = 2.0  # BLEU of translations that have nothing in common with the references, in many enough sentences:
_ENOUGH = 50


@dataclass(frozen=True, slots=True)
class Gain:
    """The model alone and with a store, at the store's own settings.

    pairs: number of measured pairs
    known: number of pairs that were left out, because the store holds their source or target
    base_loss, loss: of their tokens, in nats
    translated: number of translated pairs; without any, there are no scores
    base_interval, interval: half the 95% intervals of BLEU
    p_value: of the difference in BLEU, by a paired bootstrap
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
    base_interval: float = 0.0
    interval: float = 0.0
    p_value: float = 1.0

    @property
    def is_worse(self) -> bool:
        """Whether the store is worse than the model alone.

        Both scores are lower, and either the difference is significant or perplexity is worse, too. Without scores,
        perplexity decides.
        """
        if not self.translated:
            return self.loss > self.base_loss
        lower = self.bleu < self.base_bleu and self.chrf < self.base_chrf
        return lower and (self._is_significant or self.loss > self.base_loss)

    @property
    def is_better(self) -> bool:
        """Whether the store is better than the model alone; without scores, by perplexity."""
        if not self.translated:
            return self.loss < self.base_loss
        return self.bleu > self.base_bleu and self._is_significant

    @property
    def is_unrelated(self) -> bool:
        """Whether neither system's translations have anything in common with the targets: these may be wrong."""
        return self.translated >= _ENOUGH and max(self.base_bleu, self.bleu) < _UNRELATED

    @property
    def is_bad(self) -> bool:
        """Whether the store should not be used as it is."""
        return self.is_worse or self.is_unrelated

    @property
    def _is_significant(self) -> bool:
        return self.p_value < _SIGNIFICANT

    @property
    def verdict(self) -> list[str]:
        """Lines for people: whether the store is better, and if it is bad, why that may be and what to do."""
        word = "worse" if self.is_worse else "better" if self.is_better else "no gain"
        if self.is_unrelated:
            word = "unrelated"
        measured = (
            f"perplexity {math.exp(self.loss):.2f} with the store, {math.exp(self.base_loss):.2f} without it, on "
            f"{self.pairs:,} pairs that it does not hold"
        )
        if self.translated:
            measured = (
                f"BLEU {self.bleu:.1f} ± {self.interval:.1f} with the store, {self.base_bleu:.1f} ± "
                f"{self.base_interval:.1f} without it, on {self.translated:,} sentences that it does not hold"
            )
        lines = [f"{word:<11}{measured}"]
        if word == "no gain":
            lines[0] += ". The difference is not significant"
        if self.is_bad:
            lines += [
                "           Perhaps targets stand beside the wrong sources, or are bad or in another language: look at",
                "           some pairs, and leave such pairs out (--max-ratio 3, --drop-copies)",
            ]
        return lines

    @property
    def details(self) -> list[str]:
        """Lines for people who want to know more."""
        known = f" ({self.known:,} known by source or target not counted)" if self.known else ""
        lines = [
            f"perplexity {math.exp(self.base_loss):.2f} for the model alone, {math.exp(self.loss):.2f} with the store, "
            f"on {self.pairs:,} pairs new to it{known}"
        ]
        if self.translated:
            lines.append(
                f"chrF       {self.base_chrf:.1f} for the model alone, {self.chrf:.1f} with the store; p = "
                f"{self.p_value:.3f} for the difference in BLEU"
            )
        return lines


def measure_gain(
    translator: Translator,
    path: Path,
    pairs: Sequence[SegmentPair],
    sample: int,
    progress: Callable[[int, int], None] = ignore,
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
        text = search_text(
            translator.engine,
            memory.opened,
            new,
            progress=lambda done, _rows: progress(done, total),
            scope=config.scope,
        )
        positions = text.positions()
    losses = positions.loss(None), positions.loss(config)
    memory.opened.datastore.require_unchanged()
    known = len(pairs) - len(new)
    if not some:
        return Gain(len(new), known, *losses), None
    systems: list[list[str]] = []
    translations: list[Translation] = []
    for datastore in (None, path):
        translations = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KnnmtWarning)  # of single lines, which the score counts anyway
            for each in translator.stream([pair.source for pair in some], datastore=datastore, settings="raw"):
                translations.append(each)
                progress(2 * len(new) + len(systems) * len(some) + len(translations), total)
        systems.append([each.text for each in translations])
    targets = [pair.target for pair in some]
    base, own = compare(systems, targets, memory.opened.datastore.manifest.target_language)
    gain = Gain(
        len(new),
        known,
        *losses,
        len(some),
        *(base.bleu.value, own.bleu.value, base.chrf.value, own.chrf.value),
        *(base.bleu.interval or 0.0, own.bleu.interval or 0.0),
        1.0 if own.bleu.p_value is None else own.bleu.p_value,
    )
    return gain, certainty_of(translations, targets, config)
