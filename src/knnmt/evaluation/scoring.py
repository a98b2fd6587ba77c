"""BLEU and chrF by sacrebleu, with its signatures and its paired bootstrap test (Koehn, 2004)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from knnmt.config import check
from knnmt.errors import MissingDependencyError, SettingError

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Score:
    """A corpus score and its signature.

    interval: half of the 95 % interval of the resampled scores, if there was resampling
    p_value: the probability that chance alone makes as large a difference from the first system; None for the first
    """

    value: float
    signature: str
    interval: float | None = None
    p_value: float | None = None


class Metric(Protocol):
    """A metric beside BLEU and chrF, such as COMET. It raises `CometError` if it fails."""

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Score:
        """The score of a system's hypotheses."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of sacrebleu for a system's hypotheses."""

    bleu: Score
    chrf: Score


def require_sacrebleu(target_language: str = "en") -> None:
    """Raise an error before the translation if sacrebleu is missing, or cannot score the language."""
    _metrics(["-"], target_language)


def score(hypotheses: Sequence[str], references: Sequence[str], target_language: str = "en") -> Scores:
    """Corpus scores with one reference per segment. The language chooses BLEU's tokenization, as in sacrebleu."""
    bleu, chrf = _metrics(references, target_language)
    _check_lengths(hypotheses, references)
    scores = [
        Score(float(metric.corpus_score(hypotheses, None).score), str(metric.get_signature()))
        for metric in (bleu, chrf)
    ]
    return Scores(*scores)


def compare(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    target_language: str = "en",
    resamples: int = RESAMPLES,
) -> list[Scores]:
    """Scores of every system's hypotheses, with intervals, and p-values against the first.

    The same resamples of segments serve all systems. Their seed is sacrebleu's own, 12345 unless the environment
    variable SACREBLEU_SEED says otherwise; the signatures contain it.
    """
    bleu_metric, chrf_metric = _metrics(references, target_language)
    for hypotheses in systems:
        _check_lengths(hypotheses, references)
    from sacrebleu.significance import PairedTest

    # Numbers serve as names, because the test does not use names.
    named = [(str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)]
    metrics = {"BLEU": bleu_metric, "chrF": chrf_metric}
    test = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    by_metric = [
        [
            Score(float(each.score), str(signature), float(each.ci), p_value)
            for each, p_value in zip(results[name], _p_values(metric, systems, resamples), strict=True)
        ]
        for (name, signature), metric in zip(signatures.items(), metrics.values(), strict=True)
    ]
    return [Scores(bleu, chrf) for bleu, chrf in zip(*by_metric, strict=True)]


def _p_values(metric: Any, systems: Sequence[Sequence[str]], resamples: int) -> list[float | None]:
    """The p-values of each system against the first, by the same resamples that give its interval.

    They are not sacrebleu's, which drops the sign of the resampled differences and calls two equal systems different.
    """
    scores_each = [_resampled(metric, hypotheses, resamples) for hypotheses in systems]
    return [None, *(Difference.of(scores - scores_each[0]).p_value for scores in scores_each[1:])]


def _resampled(metric: Any, hypotheses: Sequence[str], resamples: int) -> Any:
    """An array: the score of all segments, then of random draws of as many, the same draws for every system."""
    import numpy as np

    seed = int(os.environ.get("SACREBLEU_SEED", "12345"))
    segments = len(hypotheses)
    draws = np.random.default_rng(seed).choice(segments, size=(resamples, segments), replace=True)
    # How often each draw has each segment: (resamples, segments). Sums of whole numbers are exact.
    rows = draws + segments * np.arange(resamples)[:, None]
    times = np.bincount(rows.reshape(-1), minlength=rows.size).reshape(rows.shape)
    statistics = np.array(metric._extract_corpus_statistics(list(hypotheses), None))
    sums = np.concatenate([statistics.sum(0, keepdims=True), times @ statistics])
    # Of few segments, many draws are the same.
    scores = {each: metric._compute_score_from_stats(list(each)).score for each in {*map(tuple, sums.tolist())}}
    return np.array([scores[tuple(each)] for each in sums.tolist()])


def resampled_scores(
    hypotheses: Sequence[str], references: Sequence[str], target_language: str = "en", resamples: int = RESAMPLES
) -> tuple[Any, Any]:
    """Arrays of BLEU and chrF: of all segments, then of `resamples` draws, which are the same for every system."""
    bleu, chrf = _metrics(references, target_language)
    _check_lengths(hypotheses, references)
    return _resampled(bleu, hypotheses, resamples), _resampled(chrf, hypotheses, resamples)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two systems, by a paired bootstrap.

    low, high: the 95 % interval of the resampled differences
    p_value: the probability that chance alone makes a difference as large
    """

    value: float
    low: float
    high: float
    p_value: float

    @classmethod
    def of(cls, differences: Any) -> Difference:
        """From an array of the real difference and the resampled ones."""
        import numpy as np

        real, resampled = float(differences[0]), differences[1:]
        low, high = (float(each) for each in np.quantile(resampled, (0.025, 0.975)))
        centred = np.abs(resampled - resampled.mean())
        return cls(real, low, high, (1 + int((centred >= abs(real)).sum())) / (1 + len(resampled)))


def _metrics(references: Sequence[str], target_language: str) -> tuple[Any, Any]:
    try:
        from sacrebleu import BLEU, CHRF
    except ImportError as error:
        raise MissingDependencyError("sacrebleu", "scoring translations", "evaluate") from error

    check(len(references) > 0, "there is no segment to score")
    language = target_language.replace("_", "-").partition("-")[0].lower()
    try:
        return BLEU(references=[list(references)], trg_lang=language), CHRF(references=[list(references)])
    except (ImportError, RuntimeError) as error:  # Japanese and Korean need more packages
        raise SettingError(
            f"sacrebleu cannot score the language {language!r}: {' '.join(str(error).split())}"
        ) from error


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    check(
        len(hypotheses) == len(references),
        f"expected a hypothesis for each of {len(references)} references, got {len(hypotheses)}",
    )
