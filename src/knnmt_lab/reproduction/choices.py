"""The effect of each choice: differences between rows that differ in one thing, each with a paired bootstrap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from knnmt import Difference, resampled_scores
from knnmt_lab.reproduction.plan import (
    ALPHAS,
    COMBINERS,
    MORE_TAUS,
    PRUNING_KS,
    SEGMENT_CHOICES,
    SEGMENT_COUNTS,
    SHARES,
    SUREST,
    TAUS,
    TOLD_APART,
)
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import NOT_RUN, Lines

_METRICS = ("BLEU", "chrF")
# The choice, the row with it, the row without it.
_ASKED = (
    ("a memory, as published", "A/knn", "base"),
    ("a memory, ours", "B/knn", "base"),
    ("our search instead of IVFPQ, both with fixed λ", "B/knn-fixed", "A/knn"),
    ("our search instead of IVFPQ, both with λ that fades", "B/knn", "A/knn-fading"),
    ("λ that fades instead of fixed λ, both with our search", "B/knn", "B/knn-fixed"),
    ("λ that fades instead of fixed λ, both with IVFPQ", "A/knn-fading", "A/knn"),
    ("k and λ by BLEU instead of likelihood, as published", "A/knn-bleu", "A/knn"),
    ("Fast kNN-MT, c = 512, instead of kNN-MT as published, both with fixed λ", "fast-512", "A/knn"),
    ("Fast kNN-MT, c = 512, instead of our search, both with fixed λ", "fast-512", "B/knn-fixed"),
    ("search by segment instead of the whole store, ours", "segments", "B/knn"),
    *((f"{name} instead of λ that fades", f"B/{name}", "B/knn") for name in COMBINERS),
    ("entries that the model knows left out (PLAC), ours", "B/plac", "B/knn"),
    *(
        (f"{100 - kept} % of the entries left out where the model is surest, ours", f"B/{name}", "B/knn")
        for name, kept in SUREST.items()
    ),
    ("SK-MT's choice and λ instead of ours by segment", "sk-mt", "segments"),
    ("SK-MT instead of the whole store, ours", "sk-mt", "B/knn"),
    *((f"{count} segments instead of the whole store", f"segments-{count}", "B/knn") for count in SEGMENT_COUNTS),
    *((f"{told}, 128 segments", f"segments-{name}", "segments-128") for name, told in SEGMENT_CHOICES.items()),
    *((f"{count} segments instead of 128", f"segments-{count}", "segments-128") for count in SEGMENT_COUNTS[1:]),
    *(
        (f"PCA to {dim} dimensions, {told}", f"{block}/pca-{dim}", f"{block}/knn")
        for block, told in (("A", "as published"), ("A20", "as published, 20 codes"), ("B", "ours"))
        for dim in (256, 80, 40)
    ),
    ("20 codes for a key instead of 64", "A20/knn", "A/knn"),
    ("probes for the fidelity of B, and its k", "A/knn-probes", "A/knn-k"),
    *(
        (f"pruning with k = {k}, {told}", f"{block}/pruning-{k}", f"{block}/knn")
        for block, told in (("A", "as published"), ("B", "ours"))
        for k in PRUNING_KS
    ),
    *((f"counting what was merged, k = {k}", f"B/pruning-{k}", f"B/pruning-{k}-uncounted") for k in (2, 5)),
    *(
        (asked, f"A/cache-{tau}{kind}", "A/knn")
        for tau in TOLD_APART
        for asked, kind in (
            (f"the cache τ = {tau}, as published", ""),
            ("the same, hits not kept", "-misses"),
            ("the same, one for each sentence, hits kept", "-sentence-hits"),
            ("the same, one for each sentence, hits not kept", "-sentence"),
        )
    ),
    *(
        (f"the cache τ = {tau}, as published{', hits not kept' if kind else ''}", f"A/cache-{tau}{kind}", "A/knn")
        for kind, taus in MORE_TAUS.items()
        for tau in taus
    ),
    ("the published cache τ = 6 with IVFPQ and λ that fades", "A/cache-6-fading", "A/knn-fading"),
    ("the published cache τ = 6 with our search and fixed λ", "B/cache-6-published-fixed", "B/knn-fixed"),
    ("the published cache τ = 6 with our search and λ that fades", "B/cache-6-published", "B/knn"),
    *((f"the cache τ = {tau}, ours", f"B/cache-{tau}", "B/knn") for tau in TAUS),
    *(
        (f"{told}, {share} % of steps, instead of as many by chance", f"A/{kind}-{share}", f"A/chance-{share}")
        for share in SHARES
        for told, kind in (("the published gate", "gate"), ("our gate", "own-gate"))
    ),
    *(
        (f"the published gate instead of ours, {share} % of steps", f"A/gate-{share}", f"A/own-gate-{share}")
        for share in SHARES
    ),
    *(
        (f"the published gate, {share} % of steps, instead of all steps", f"A/gate-{share}", "A/knn")
        for share in SHARES
    ),
    ("the cache τ = 6, as published, instead of the published gate, 50 % of steps", "A/cache-6", "A/gate-50"),
    *((f"the published gate, α = {alpha}, instead of all steps", f"A/adaptive-{alpha}", "A/knn") for alpha in ALPHAS),
    *(
        (f"{asked}, {told}", f"{block}/{name}", f"{block}/knn")
        for block, told in (("A", "as published"), ("B", "ours"))
        for asked, name in (
            ("PCA and cache", "pca+cache"),
            ("PCA and pruning", "pca+pruning"),
            ("all three methods together", "pca+cache+pruning"),
        )
    ),
)
_Pairs = list[tuple[str, str]]  # the row with something, the row without it
# The published cache with one λ and either index, and with one index and either λ.
_FIXED: _Pairs = [("A/cache-6", "A/knn"), ("B/cache-6-published-fixed", "B/knn-fixed")]
_FADING: _Pairs = [("A/cache-6-fading", "A/knn-fading"), ("B/cache-6-published", "B/knn")]
_IVFPQ, _OURS = ([fixed, fading] for fixed, fading in zip(_FIXED, _FADING, strict=True))
# What one of the two adds to the effect of the cache: with it, and without it.
_TWO_BY_TWO = (
    ("what λ that fades adds to the effect of the published cache τ = 6, mean of both indexes", _FADING, _FIXED),
    ("what our search adds to it, mean of both λ", _OURS, _IVFPQ),
)
_HITS_TAUS, _MISSES_TAUS = (8, 9, 10, 11, 12), (8, 9, 10, 11, 12, 14, 16)


def choices(results: Results) -> Lines:
    """BLEU of one row minus BLEU of the other, in each domain and on average, and chrF on average.

    Each is followed by half of the 95 % interval of the resampled differences, and by a star if p is below 0.05.
    Comparisons that were not run in any domain are left out.
    """
    compared = _Compared(results)
    lines = [["choice", *results.domains, "average", "average, chrF"]]
    effects: list[tuple[str, _Pairs, _Pairs]] = [
        (asked, [(one, other)], []) for asked, one, other in (*_ASKED, *_at_equal_shares(results))
    ]
    for asked, plus, minus in (*effects, *_TWO_BY_TWO):
        found = [compared.effects(domain, plus, minus) for domain in results.domains]
        if any(each is not None for each in found):
            cells = [NOT_RUN if each is None else told(each[0]) for each in found]
            there = [each for each in found if each is not None]
            whole = len(there) == len(found)
            averages = [told(sum(each[place] for each in there) / len(there)) for place in range(len(_METRICS))]
            lines.append([asked, *cells, *(averages if whole else [NOT_RUN] * len(averages))])
    return lines


def _at_equal_shares(results: Results) -> Iterator[tuple[str, str, str]]:
    """Each cache that keeps hits, with the cache of misses only whose share of searches is nearest to its own."""
    shares = {
        name: share
        for name in (*(f"A/cache-{tau}" for tau in _HITS_TAUS), *(f"A/cache-{tau}-misses" for tau in _MISSES_TAUS))
        if (share := results.average(lambda each: each.searched(), name)) is not None
    }
    others = [name for name in shares if name.endswith("-misses")]
    for name in [name for name in shares if others and not name.endswith("-misses")]:
        other = min(others, key=lambda each: abs(shares[each] - shares[name]))
        taus = [each.split("-")[1] for each in (name, other)]
        yield (
            f"hits kept, τ = {taus[0]} ({shares[name]:.1f} % of steps search), instead of misses only, τ = {taus[1]} "
            f"({shares[other]:.1f} %)",
            name,
            other,
        )
        if (same := f"{name}-misses") in shares and same != other:
            yield f"hits kept instead of misses only, both τ = {taus[0]}", name, same


def told(differences: Any) -> str:
    """A difference, half of its interval, and a star if p is below 0.05."""
    found = Difference.of(differences)
    return f"{found.value:+.2f} ± {(found.high - found.low) / 2:.2f}{'*' * (found.p_value < 0.05)}"


def over_seeds(scores: Sequence[Any]) -> Any:
    """The mean of the same row's scores with several seeds. scores: the real one, then the resampled ones, of each seed

    In each resample, it is the mean of as many seeds drawn with replacement, so that an interval contains the variation
    between seeds, too. Rows with the same number of seeds have the same draws.
    """
    of_seeds = np.stack(scores)
    drawn = np.random.default_rng(0).integers(len(of_seeds), size=of_seeds.shape)
    drawn[:, 0] = np.arange(len(of_seeds))
    return np.take_along_axis(of_seeds, drawn, axis=0).mean(axis=0)


class _Compared:
    """Resampled scores of rows; for a row with several seeds, as in `over_seeds`."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._resampled = cache(self._resample)

    def effects(self, domain: str, plus: _Pairs, minus: _Pairs) -> tuple[Any, Any] | None:
        """The mean difference of some pairs of rows, less that of other pairs, if there are any; as `differences`."""
        weighted = [(1 / len(plus), pair) for pair in plus] + [(-1 / len(minus), pair) for pair in minus]
        found = [(weight, self.differences(domain, *pair)) for weight, pair in weighted]
        there = [(weight, each) for weight, each in found if each is not None]
        if len(there) < len(found):
            return None
        bleu, chrf = (sum(weight * each[metric] for weight, each in there) for metric in range(len(_METRICS)))
        return bleu, chrf

    def differences(self, domain: str, one: str, other: str) -> tuple[Any, Any] | None:
        """Differences of BLEU and chrF, an array each:

        the real one, then the resampled ones; None if a row was not run.
        """
        both = self._resampled(domain, one), self._resampled(domain, other)
        if both[0] is None or both[1] is None:
            return None
        return both[0][0] - both[1][0], both[0][1] - both[1][1]

    def _resample(self, domain: str, name: str) -> tuple[Any, Any] | None:
        references, language = self._results.texts[domain].references, self._results.plan["target language"]
        found = [
            resampled_scores(each.record["hypotheses"], references, language)
            for each in self._results.of_seeds(domain, name)
        ]
        if not found:
            return None
        bleu, chrf = (over_seeds(arrays) for arrays in zip(*found, strict=True))
        return bleu, chrf
