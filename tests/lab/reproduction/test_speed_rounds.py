"""Speed: systems take turns, a round that is done is kept, and ratios are those of a round."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from knnmt_lab.reproduction.plan import all_rows
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.speed import measure_speed
from knnmt_lab.reproduction.tables import Tables


class System:
    def __init__(self, name: str, asked: list[tuple[str, int]]) -> None:
        self.row = SimpleNamespace(name=name)
        self._asked = asked

    def translate(self, _translator: Any, sources: list[str], _batch_size: int) -> tuple[list[str], dict[str, Any]]:
        self._asked.append((self.row.name, len(sources)))
        figures = {"tokens": 1, "seconds": 1.0, "stage_seconds": {}, "searches": {}, "signature": self.row.name}
        return sources, figures


def test_every_round_is_kept_before_the_next_begins() -> None:
    asked: list[tuple[str, int]] = []
    kept: list[dict[str, Any]] = []
    systems: Any = [System("one", asked), System("other", asked)]
    translator: Any = None
    found = measure_speed(translator, systems, ["a", "b", "c"], 2, 3, lambda record: kept.append(copy.deepcopy(record)))
    assert asked == [("one", 2), ("other", 2), *[("one", 3), ("other", 3)] * 3]  # a batch warms up, then turns
    counts = [[len(each["rounds"]) for each in record["systems"].values()] for record in kept]
    assert counts == [[1, 1], [2, 2], [3, 3]]
    assert kept[-1] == found


def test_a_ratio_is_that_of_two_systems_in_the_same_round() -> None:
    seconds = {"B/knn-fixed": (5, 5, 4), "A/knn-k": (10, 20, 10), "base": (1, 1, 1)}
    systems = {name: {"rounds": [{"tokens": 100, "seconds": each} for each in of]} for name, of in seconds.items()}
    results = Results(("one",), {}, {("one", 8): {"systems": systems}}, {}, {}, {})
    tables = Tables(results, all_rows(320))
    assert tables.reference == "A/knn-k"  # of which only the search differs
    assert [line[1] for line in tables.speed("one")] == [
        "batch 8",
        "20 (20–25), 2.50 (2.00–4.00)",
        "10 (5–10), 1",
        "100 (100–100), 10.00 (10.00–20.00)",
    ]
