"""Choices on the half that is not reported: pairs that nothing was tuned on, and the gate that loses least."""

from __future__ import annotations

from knnmt.corpus.splitting import spread
from knnmt_lab.reproduction.choosing import PAIRS, chosen_gate, rows_to_choose_from, untuned
from knnmt_lab.reproduction.plan import all_rows, chosen_rows
from knnmt_lab.reproduction.tuning import TUNING_PAIRS
from support.datastore_pairs import some_pairs


def test_pairs_that_nothing_was_tuned_on() -> None:
    pairs = some_pairs(TUNING_PAIRS + PAIRS + 50)
    tuned = spread(pairs, TUNING_PAIRS)
    found = untuned(pairs)
    assert len(found) == PAIRS
    assert not {pair.origin for pair in found} & {pair.origin for pair in tuned}
    assert untuned(pairs[:20]) == pairs[:20]


def test_rows_are_compared_only_with_the_one_that_all_are_compared_with() -> None:
    rows = all_rows(320)
    names = [row.name for row in rows_to_choose_from(rows)]
    assert names == ["B/knn", "B/knn-fixed", *(f"B/cache-{tau}" for tau in (2, 4, 6, 8, 12))]
    assert rows_to_choose_from(chosen_rows(rows, ["B/knn-fixed", "B/cache-*"])) == []
    assert rows_to_choose_from(chosen_rows(rows, ["B/knn", "A/*"], ["A/knn-k", "A/knn-probes"])) == []


def test_the_first_variant_is_the_gate() -> None:
    found = chosen_gate(
        {"variants": [{"features": ["confidence", "entropy"], "l1": 0.2}, {"features": [], "l1": 0}]}, 3
    )
    assert (found.features, found.l1, found.seed) == (("confidence", "entropy"), 0.2, 3)
