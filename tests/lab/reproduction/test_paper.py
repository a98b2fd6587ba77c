"""The paper's numbers as typed: averages and percentages are those that its text gives; and where they stand."""

from __future__ import annotations

import statistics

import pytest

from knnmt.evaluation.scoring import Score, Scores
from knnmt_lab.reproduction import paper
from knnmt_lab.reproduction.plan import ALPHAS, all_rows
from knnmt_lab.reproduction.results import Results, RowResult
from knnmt_lab.reproduction.tables import Tables


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


def searching(share: int) -> RowResult:
    """A row of which this percentage of the steps searched."""
    counted = {"rows": 100, "searches": share, "first_rows": 0, "first_searches": 0}
    score = Score(0.0, "made")
    return RowResult({"searches": counted}, Scores(score, score), None)


@pytest.mark.parametrize(
    ("domains", "theirs"),
    [
        (("medical", "law", "it", "koran"), [["78", "73", "38", "4", "48"], ["98", "99", "92", "91", "95"]]),
        (("law", "poems"), [["73", "", ""], ["99", "", ""]]),  # their mean is of other domains
        (("poems",), []),
    ],
)
def test_shares_of_gates_stand_beside_the_papers_and_not_under_its_names(
    domains: tuple[str, ...], theirs: list[list[str]]
) -> None:
    rows = {(domain, f"A/adaptive-{alpha}"): searching(60) for domain in domains for alpha in ALPHAS}
    tables = Tables(Results(domains, rows, {}, {}, {}, {}), all_rows(320))
    lines = {line[0]: line[1:] for line in tables.adaptive_searches()}
    assert lines["adaptive α = 0.25"] == ["60"] * (len(domains) + 1)
    papers = [line for label, line in lines.items() if label.startswith("paper, α = ")]
    assert [*papers[:1], *papers[2:]] == theirs
