"""BLEU and chrF by sacrebleu, with its signatures and its paired bootstrap test (Koehn, 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from knnmt.config import check
from knnmt.errors import MissingDependencyError

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Score:
    """A corpus score and what it was computed by.

    interval: half of the 95 % interval of the resampled scores, where there was resampling
    p_value: that the difference from the first system is chance; None for the first itself
    """

    value: float
    signature: str
    interval: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What sacrebleu says of a system's hypotheses."""

    bleu: Score
    chrf: Score


def require_sacrebleu() -> None:
    """Raise `MissingDependencyError` at once, not after everything is translated."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("sacrebleu", "scoring translations", "evaluate") from error


def score(hypotheses: Sequence[str], references: Sequence[str], target_language: str = "en") -> Scores:
    """Corpus scores against one reference a segment. The language chooses the tokens of BLEU, as sacrebleu does."""
    bleu, chrf = _metrics(references, target_language)
    _check_lengths(hypotheses, references)
    found = [
        Score(float(metric.corpus_score(hypotheses, None).score), str(metric.get_signature()))
        for metric in (bleu, chrf)
    ]
    return Scores(*found)


def compare(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    target_language: str = "en",
    resamples: int = RESAMPLES,
) -> list[Scores]:
    """Scores of every system's hypotheses, with intervals, and p-values against the first.

    The same resamples of segments serve all systems. Their seed is sacrebleu's own, 12345 unless the environment
    variable SACREBLEU_SEED says otherwise; it stands in the signatures.
    """
    bleu_metric, chrf_metric = _metrics(references, target_language)
    for hypotheses in systems:
        _check_lengths(hypotheses, references)
    from sacrebleu.significance import PairedTest

    # By numbers: names matter nothing to the test.
    named = [(str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)]
    metrics = {"BLEU": bleu_metric, "chrF": chrf_metric}
    test = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)
    signatures, results = test()
    by_metric = [
        [Score(float(each.score), str(signature), float(each.ci), each.p_value) for each in results[name]]
        for name, signature in signatures.items()
    ]
    return [Scores(bleu, chrf) for bleu, chrf in zip(*by_metric, strict=True)]


def _metrics(references: Sequence[str], target_language: str) -> tuple[Any, Any]:
    require_sacrebleu()
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    check(len(references) > 0, "there is no segment to score")
    language = target_language.replace("_", "-").partition("-")[0].lower()
    return BLEU(references=[list(references)], trg_lang=language), CHRF(references=[list(references)])


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    check(
        len(hypotheses) == len(references),
        f"expected a hypothesis for each of {len(references)} references, got {len(hypotheses)}",
    )
