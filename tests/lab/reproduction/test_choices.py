"""Differences and their intervals: at the nearest share of searches, over seeds, and two by two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.evaluation.scoring import Score, Scores, resampled_scores
from knnmt_lab.reproduction.choices import choices, over_seeds, told
from knnmt_lab.reproduction.results import Results, RowResult
from knnmt_lab.reproduction.texts import DomainText

REFERENCES = ["The cat sat on the mat today.", "A dog ran over the green hill.", "We all went home in the rain."]
WORSE = ["The cat sat on the mat.", "A dog ran on the green hill.", "We went home."]
SHARES = {  # of two domains, in percent: only averages decide
    "A/knn": (100, 100),
    "A/cache-8": (52, 48),
    "A/cache-12": (40, 30),
    "A/cache-8-misses": (60, 56),
    "A/cache-12-misses": (50, 44),
    "A/cache-16-misses": (33, 39),
}


def result(name: str, searched: int) -> RowResult:
    hypotheses = WORSE if name == "A/cache-12" else REFERENCES
    record: dict[str, Any] = {"row": name, "hypotheses": hypotheses, "searches": {"rows": 100, "searches": searched}}
    return RowResult(record, Scores(Score(0.0, ""), Score(0.0, "")), None)


@pytest.fixture
def results() -> Results:
    text = DomainText([], [SegmentPair("", target, "") for target in REFERENCES], "test", 0)
    rows = {
        (domain, name): result(name, shares[place])
        for name, shares in SHARES.items()
        for place, domain in enumerate(("one", "two"))
    }
    return Results(("one", "two"), rows, {}, {"one": text, "two": text}, {}, {"target language": "en"})


def test_kept_hits_are_compared_at_the_nearest_share(results: Results) -> None:
    lines = {line[0]: line[1:] for line in choices(results) if line[0].startswith("hits kept")}
    assert list(lines) == [
        "hits kept, τ = 8 (50.0 % of steps search), instead of misses only, τ = 12 (47.0 %)",
        "hits kept instead of misses only, both τ = 8",
        "hits kept, τ = 12 (35.0 % of steps search), instead of misses only, τ = 16 (36.0 %)",
        "hits kept instead of misses only, both τ = 12",
    ]
    worse, same = (resampled_scores(each, REFERENCES, "en")[0] for each in (WORSE, REFERENCES))
    differences = worse - same
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    loss = lines["hits kept, τ = 12 (35.0 % of steps search), instead of misses only, τ = 16 (36.0 %)"]
    assert loss[0].startswith(f"{differences[0]:+.2f} ± {(high - low) / 2:.2f}")
    assert lines["hits kept instead of misses only, both τ = 8"][0] == "+0.00 ± 0.00"


def test_an_interval_contains_the_variation_between_seeds() -> None:
    flat = [np.full(1001, score) for score in (10.0, 20.0, 60.0)]  # no sentence matters
    found = over_seeds(flat)
    assert found[0] == 30
    means = {(one + two + three) / 3 for one in (10, 20, 60) for two in (10, 20, 60) for three in (10, 20, 60)}
    assert {round(each, 6) for each in found[1:]} == {round(each, 6) for each in means}
    assert np.var(found[1:]) == pytest.approx(np.var([10, 20, 60]) / 3, rel=0.1)
    np.testing.assert_allclose(over_seeds([each + 5 for each in flat]) - found, 5)  # as many seeds: the same draws
    sentences = np.arange(1001.0)
    assert (over_seeds([sentences]) == sentences).all()
    assert (over_seeds([sentences, sentences]) == sentences).all()  # each sample of sentences is its own


def test_a_cache_is_examined_two_by_two(results: Results) -> None:
    worse = {"A/cache-6-fading", "B/cache-6-published"}  # only λ that fades loses
    names = ["A/knn", "A/knn-fading", "B/knn", "B/knn-fixed", "A/cache-6", "B/cache-6-published-fixed", *worse]
    for domain in results.domains:
        for name in names:
            results.rows[domain, name] = result(name, 50)
            results.rows[domain, name].record["hypotheses"] = WORSE if name in worse else REFERENCES
    lines = {line[0]: line[1:] for line in choices(results)}
    loss, same = (resampled_scores(each, REFERENCES, "en")[0] for each in (WORSE, REFERENCES))
    asked = "what λ that fades adds to the effect of the published cache τ = 6, mean of both indexes"
    assert lines[asked][0] == told(loss - same)
    assert loss[0] < same[0]
    assert lines["what our search adds to it, mean of both λ"][0] == "+0.00 ± 0.00"
    del results.rows["one", "B/knn-fixed"]
    assert next(line for line in choices(results) if line[0] == asked)[1] == "not run"
