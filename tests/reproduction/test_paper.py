"""The paper's numbers as typed: averages are those of the domains, percentages those that its text gives."""

from __future__ import annotations

import statistics

import pytest

from knnmt.reproduction import paper
from knnmt.reproduction.plan import all_rows


@pytest.mark.parametrize("table", [paper.BLEU, paper.COMET])
def test_averages_are_those_of_the_domains(table: dict[str, tuple[float, ...]]) -> None:
    digits = 2 if table is paper.BLEU else 4
    for name, (*domains, average) in table.items():
        assert len(domains) == len(paper.DOMAINS)
        assert statistics.mean(domains) == pytest.approx(average, abs=0.51 * 10**-digits), name


def test_names_are_those_of_rows() -> None:
    known = {row.name.removeprefix("A/") for row in all_rows(paper.DIM)}
    for table in (paper.BLEU, paper.COMET, paper.ENTRIES, paper.SEARCHED, paper.SETTINGS):
        assert set(table) <= known
    assert {name for name in known if "pca-" in name and "/" not in name} == {"pca-512", "pca-256", "pca-128"}


def test_entries_and_searches_are_as_the_text_says() -> None:
    law = paper.place_of("Law")
    assert law == 1
    assert paper.place_of("letters") is None
    assert [round(paper.kept_percent(f"pruning-{k}", law)) for k in (1, 2, 5)] == [69, 58, 45]
    saved = 100 - statistics.mean(paper.SEARCHED["cache-6"])
    assert saved == pytest.approx(paper.CACHE_SAVES_PERCENT, abs=0.5)
    assert all(len(values) == 4 for values in [*paper.ENTRIES.values(), *paper.SEARCHED.values()])
    assert all(len(values) == 4 for values in paper.SETTINGS.values())
