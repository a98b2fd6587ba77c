"""Trained combiners on text that is neither reported nor taught: the fifth that says when to stop.

A choice between forms of a combiner, such as its k, is made here by BLEU, because likelihood does not tell BLEU.

OUTPUT/<domain>/validating/<row>.json   hypotheses of that fifth
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from knnmt import resampled_scores
from knnmt_lab.reproduction.choices import over_seeds, told
from knnmt_lab.reproduction.later import taught_and_validated
from knnmt_lab.reproduction.plan import COMBINERS, SEEDS, Row
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import NOT_RUN, Lines, Tables

DIRECTORY = "validating"
COMPARED = "B/knn"


def rows_to_validate(rows: Sequence[Row]) -> list[Row]:
    """The requested rows with a trained combiner; with them the row that they are compared with, if requested."""
    combined = any(row.combiner is not None for row in rows)
    return [row for row in rows if row.combiner is not None or (combined and row.name == COMPARED)]


def validation_table(results: Results, tables: Tables) -> Lines | None:
    """BLEU of each combiner minus that of λ that fades, with intervals as in `choices`; None if none was run."""
    lines = [["", *results.domains, "average", "average, chrF"]]
    for name in COMBINERS:
        found = [_difference(results, domain, f"B/{name}") for domain in results.domains]
        there = [each for each in found if each is not None]
        if there:
            whole = len(there) == len(found)
            averages = [sum(each[metric] for each in there) / len(there) if whole else None for metric in (0, 1)]
            cells = [*(each if each is None else each[0] for each in found), *averages]
            lines.append([tables.titled(f"B/{name}"), *(NOT_RUN if each is None else told(each) for each in cells)])
    return lines if len(lines) > 1 else None


def _difference(results: Results, domain: str, name: str) -> tuple[Any, Any] | None:
    """Differences of BLEU and chrF, the real one and the resampled ones, over the seeds that were run."""
    names = [name, *(f"{name}@{seed}" for seed in SEEDS)]
    hypotheses = [found for each in names if (found := results.validated.get((domain, each)))]
    compared = results.validated.get((domain, COMPARED))
    if not hypotheses or not compared:
        return None
    references = [pair.target for pair in taught_and_validated(results.texts[domain].tuning)[1]]
    language = results.plan["target language"]
    scores = [resampled_scores(each, references, language) for each in hypotheses]
    plain = resampled_scores(compared, references, language)
    bleu, chrf = (over_seeds([each[metric] for each in scores]) - plain[metric] for metric in (0, 1))
    return bleu, chrf
