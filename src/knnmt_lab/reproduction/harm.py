"""Harm: what a store does to text of the other domains, which it knows nothing of.

OUTPUT/<domain>/other-<sentences>/text.json    sentences of each other domain, from the text that it reports
OUTPUT/<domain>/other-<sentences>/<row>.json   hypotheses of all of them, one domain after the other
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from knnmt import SegmentPair, resampled_scores
from knnmt_lab.reproduction.choices import over_seeds, told
from knnmt_lab.reproduction.plan import BASE, HARM, SEEDS
from knnmt_lab.reproduction.records import read_record
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import NOT_RUN, Lines, Tables
from knnmt_lab.reproduction.texts import domains_in, read_reported

TEXT = "text.json"
_PREFIX = "other-"


def harm_directory(sentences: int) -> str:
    """The name of the directory within a domain's output."""
    return f"{_PREFIX}{sentences}"


def others_of(data: Path, languages: tuple[str, str], sentences: int) -> dict[str, Any]:
    """Sentences of every domain but the one in `data`, as a record: pairs by domain."""
    names = [each for each in domains_in(data.parent) if each != data.name]
    texts = {name: read_reported(data.parent / name, languages, sentences)[0] for name in names}
    return {"others": {name: [[pair.source, pair.target] for pair in pairs] for name, pairs in texts.items()}}


def pairs_in(record: dict[str, Any]) -> Iterable[SegmentPair]:
    """The pairs of such a record, domain after domain."""
    for name, pairs in record["others"].items():
        for number, (source, target) in enumerate(pairs):
            yield SegmentPair(source, target, f"{name}#{number}")


def harm_table(output: Path, results: Results, tables: Tables, against: str = BASE.name) -> Lines | None:
    """BLEU minus that of another row, for the store of each domain: the mean over the texts of the others.

    The directory with the most sentences is taken. None if there is none.
    """
    lines = [["store of", *results.domains, "average"]]
    differences = {domain: _differences(output / domain, results, against) for domain in results.domains}
    for name in HARM:
        found = [differences[domain].get(name) for domain in results.domains]
        there = [each for each in found if each is not None]
        if there and name not in (BASE.name, against):
            average = sum(there) / len(there) if len(there) == len(found) else None
            cells = [NOT_RUN if each is None else told(each) for each in (*found, average)]
            lines.append([tables.titled(name), *cells])
    return lines if len(lines) > 1 else None


def _differences(domain: Path, results: Results, against: str) -> dict[str, Any]:
    """The mean difference of each row from another, then the resampled means; seeds as in `over_seeds`."""
    places = sorted(domain.glob(f"{_PREFIX}*/{TEXT}"), key=lambda each: int(each.parent.name.removeprefix(_PREFIX)))
    if not places:
        return {}
    text = read_record(places[-1]) or {}
    scores = {}
    for name in HARM:
        paths = [places[-1].parent / f"{each}.json" for each in (name, *(f"{name}@{seed}" for seed in SEEDS))]
        seeds = [
            _scores(record["hypotheses"], text["others"], results.plan["target language"])
            for record in map(read_record, paths)
            if record is not None
        ]
        if seeds:
            scores[name] = [over_seeds(of_text) for of_text in zip(*seeds, strict=True)]
    if against not in scores:
        return {}
    return {
        name: sum(one - other for one, other in zip(found, scores[against], strict=True)) / len(found)
        for name, found in scores.items()
    }


def _scores(hypotheses: list[str], others: dict[str, list[list[str]]], language: str) -> list[Any]:
    """Resampled BLEU of each other domain."""
    found, first = [], 0
    for pairs in others.values():
        here = hypotheses[first : first + len(pairs)]
        found.append(resampled_scores(here, [target for _, target in pairs], language)[0])
        first += len(pairs)
    return found
