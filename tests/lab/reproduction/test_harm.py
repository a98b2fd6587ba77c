"""Harm: BLEU of other text minus that of the model alone, or of λ that fades, as the mean of texts and seeds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from knnmt.evaluation.scoring import resampled_scores
from knnmt_lab.reproduction.choices import over_seeds, told
from knnmt_lab.reproduction.harm import harm_table
from knnmt_lab.reproduction.records import write_record
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import NOT_RUN

RIGHT = {"b": ["the first of some words", "and a second line here"], "c": ["words of another kind of text"]}
ODD = "nothing that is right at all"


def test_seeds_count_with_their_mean(tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    everything = [target for targets in RIGHT.values() for target in targets]
    said = {
        "base": everything,
        "B/knn": [ODD, *everything[1:]],
        "B/robust": [ODD, ODD, everything[2]],
        "B/robust@3": [*everything[:2], ODD],
        "B/robust@4": everything,
    }
    place = tmp_path / "a" / "other-2"
    others = {name: [["source", target] for target in targets] for name, targets in RIGHT.items()}
    write_record(place / "text.json", {"others": others})
    for name, hypotheses in said.items():
        write_record(place / f"{name}.json", {"hypotheses": hypotheses, "others": list(RIGHT)})
    results = Results(("a",), {}, {}, {}, {}, {"target language": "en"})
    tables: Any = SimpleNamespace(titled=lambda name: name)

    def mean(name: str) -> Any:
        """Over both texts, one by one."""
        one = resampled_scores(said[name][:2], RIGHT["b"])[0]
        return (one + resampled_scores(said[name][2:], RIGHT["c"])[0]) / 2

    seeds = [mean("B/robust"), mean("B/robust@3"), mean("B/robust@4")]
    robust = over_seeds(seeds)
    assert robust[0] == pytest.approx(sum(each[0] for each in seeds) / 3)
    assert told(robust - mean("base")).startswith("-")
    for against, first in (("base", [["B/knn", told(mean("B/knn") - mean("base"))]]), ("B/knn", [])):
        line = ["B/robust", told(robust - mean(against))]
        expected = [[*each, each[1]] for each in (*first, line)]
        assert harm_table(tmp_path, results, tables, against) == [["store of", "a", "average"], *expected]
    assert harm_table(tmp_path, results, tables, "segments") is None
    more = Results(("a", "d"), {}, {}, {}, {}, {"target language": "en"})
    found = harm_table(tmp_path, more, tables)
    assert found is not None
    assert found[1][2:] == [NOT_RUN, NOT_RUN]
