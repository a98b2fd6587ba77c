"""Combiners on the fifth that says when to stop: which rows translate it, and how they are compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from knnmt.evaluation.scoring import resampled_scores
from knnmt_lab.reproduction.choices import over_seeds, told
from knnmt_lab.reproduction.later import taught_and_validated
from knnmt_lab.reproduction.plan import all_rows, chosen_rows
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import NOT_RUN
from knnmt_lab.reproduction.texts import DomainText
from knnmt_lab.reproduction.validating import rows_to_validate, validation_table
from support.datastore_pairs import some_pairs


def test_rows_without_a_combiner_translate_it_only_to_be_compared_with() -> None:
    rows = all_rows(320)
    asked = chosen_rows(rows, ["base", "B/knn", "B/robust", "B/robust-fading-8@2"])
    assert [row.name for row in rows_to_validate(asked)] == ["B/knn", "B/robust", "B/robust-fading-8@2"]
    assert rows_to_validate(chosen_rows(rows, ["base", "B/knn", "B/plac"])) == []


def test_a_combiner_counts_with_the_mean_of_its_seeds() -> None:
    pytest.importorskip("sacrebleu")
    text = DomainText(some_pairs(60), some_pairs(3, start=100), "half of dev", 0)
    references = [pair.target for pair in taught_and_validated(text.tuning)[1]]
    assert len(references) > 5
    worse = ["something else entirely", *references[1:]]
    worst = ["something else entirely", "nothing of it at all", *references[2:]]
    validated = {
        ("a", "B/knn"): worst,
        ("a", "B/robust"): worse,
        ("a", "B/robust@2"): references,
        ("b", "B/robust"): references,  # nothing to compare it with
    }
    results = Results(("a", "b"), {}, {}, {"a": text, "b": text}, {}, {"target language": "en"}, validated=validated)
    tables: Any = SimpleNamespace(titled=lambda name: name)
    found = validation_table(results, tables)
    scores = [resampled_scores(each, references)[0] for each in (worse, references, worst)]
    difference = over_seeds(scores[:2]) - scores[2]
    assert difference[0] == pytest.approx((scores[0][0] + scores[1][0]) / 2 - scores[2][0])
    assert difference[0] > 1
    assert found == [
        ["", "a", "b", "average", "average, chrF"],
        ["B/robust", told(difference), NOT_RUN, NOT_RUN, NOT_RUN],
    ]
    assert validation_table(Results(("a",), {}, {}, {"a": text}, {}, {}), tables) is None
