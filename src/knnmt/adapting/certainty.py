"""Measures how certain translations are:

pairs that the store does not hold are translated and compared with their targets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from knnmt.calibration.certainty import MIN_PAIRS, Certainty, fit_certainty
from knnmt.config import RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.overlap import unseen
from knnmt.errors import DatastoreDamagedError, KnnmtWarning, MissingDependencyError, SettingError
from knnmt.progress import ignore
from knnmt.segments.matches import likeness
from knnmt.translator.translation import Translation
from knnmt.translator.translator import Translator


def certainty_of(
    translations: Sequence[Translation], targets: Sequence[str], config: RetrievalConfig
) -> Certainty | None:
    """Fits the likeness of translations to human ones by their log-probabilities; None if there are too few."""
    if config.gate is not None:
        return None
    try:
        alike = [likeness(each.text, target) for each, target in zip(translations, targets, strict=True)]
    except MissingDependencyError:
        return None
    usable = [each.error is None and bool(each.tokens) for each in translations]
    scores = [each.log_probability for each, used in zip(translations, usable, strict=True) if used]
    return fit_certainty(
        scores, [part for part, used in zip(alike, usable, strict=True) if used], replace(config, cache=None)
    )


def measure_certainty(
    translator: Translator,
    path: Path,
    pairs: Sequence[SegmentPair],
    progress: Callable[[int], None] = ignore,
) -> Certainty | None:
    """Translate the pairs that the store does not hold with its own settings, and measure the certainty."""
    memory = translator.memories.open(path)
    try:
        config = memory.resolve()
    except (SettingError, DatastoreDamagedError):  # a reduced store that nothing is known of, a damaged profile
        return None
    new = unseen(memory.opened.datastore, pairs)
    if len(new) < MIN_PAIRS:
        return None
    translations = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KnnmtWarning)  # of single lines
        for each in translator.stream([pair.source for pair in new], datastore=path, settings="raw"):
            translations.append(each)
            progress(len(translations))
    return certainty_of(translations, [pair.target for pair in new], config)
