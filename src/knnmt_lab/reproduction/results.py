"""The results of a reproduction, read and scored: BLEU and chrF of every row, searches, settings, speed."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from knnmt import Score, Scores, score
from knnmt.errors import InputError
from knnmt_lab.comet import Comet
from knnmt_lab.reproduction import paper
from knnmt_lab.reproduction.plan import SEEDS
from knnmt_lab.reproduction.records import read_record, write_record
from knnmt_lab.reproduction.texts import DomainText

_SCORES = "scores.json"


@dataclass(frozen=True, slots=True)
class RowResult:
    """A row in one domain, as in its file, with its scores. comet: None if not requested"""

    record: dict[str, Any]
    scores: Scores
    comet: Score | None

    def searched(self, with_first_step: bool = True) -> float:
        """The percentage of rows, over all steps, that were searched; optionally without first steps, as the paper
        counts.
        """
        counted = self.record["searches"]
        rows, searches = counted["rows"], counted["searches"]
        if not with_first_step:
            rows, searches = rows - counted["first_rows"], searches - counted["first_searches"]
        return 100 * searches / rows if rows else 0.0


@dataclass(frozen=True, slots=True)
class Results:
    """All results of an output.

    rows: by domain and name; speeds: by domain and batch size; stores: of each domain
    other_halves: of each domain, translations of text that is not reported, by the name of a row
    gate_choices, probes: of each domain, the record of what our gate and the probes of a row were chosen by
    validated: by domain and name, translations by a row of the text that its combiner was validated on
    """

    domains: tuple[str, ...]
    rows: dict[tuple[str, str], RowResult]
    speeds: dict[tuple[str, int], dict[str, Any]]
    texts: dict[str, DomainText]
    stores: dict[str, dict[str, Any]]
    plan: dict[str, Any]
    other_halves: dict[str, dict[str, Any]] = field(default_factory=dict)
    gate_choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    probes: dict[str, dict[str, Any]] = field(default_factory=dict)
    validated: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def of(self, domain: str, name: str) -> RowResult | None:
        return self.rows.get((domain, name))

    def bleu(self, domain: str, name: str) -> float | None:
        found = self.of(domain, name)
        return None if found is None else found.scores.bleu.value

    def of_seeds(self, domain: str, name: str) -> list[RowResult]:
        """A row with every seed with which it was run."""
        names = [name, *(f"{name}@{seed}" for seed in SEEDS)]
        return [found for each in names if (found := self.of(domain, each)) is not None]

    def measured(self, domain: str, name: str, measure: Callable[[RowResult], float | None]) -> float | None:
        """A value of a row in a domain, as the mean over its seeds; None if it was not run or not measured."""
        there = [found for each in self.of_seeds(domain, name) if (found := measure(each)) is not None]
        return statistics.mean(there) if there else None

    def average(self, measure: Callable[[RowResult], float], name: str) -> float | None:
        """The mean over all domains; None if one was not run."""
        found = [self.measured(domain, name, measure) for domain in self.domains]
        there = [each for each in found if each is not None]
        return statistics.mean(there) if len(there) == len(found) else None

    def average_bleu(self, name: str) -> float | None:
        return self.average(lambda each: each.scores.bleu.value, name)

    @property
    def names(self) -> list[str]:
        """The names of all rows that were run in any domain."""
        return list(dict.fromkeys(name for _, name in self.rows))

    @property
    def batch_sizes(self) -> list[int]:
        return sorted({size for _, size in self.speeds})

    @property
    def timed(self) -> list[str]:
        """Names of the systems whose speed was measured."""
        return list(dict.fromkeys(name for record in self.speeds.values() for name in record["systems"]))

    def speed(self, domain: str, size: int, name: str) -> list[float]:
        """Tokens per second of every round; empty if not measured."""
        record = self.speeds.get((domain, size), {"systems": {}})["systems"].get(name, {"rounds": []})
        return [each["tokens"] / each["seconds"] for each in record["rounds"]]

    def average_speed(self, size: int, name: str) -> float | None:
        """The mean over domains of the medians; None if one was not measured."""
        found = [self.speed(domain, size, name) for domain in self.domains]
        return statistics.mean(map(statistics.median, found)) if all(found) else None


def read_results(
    output: Path,
    tell: Callable[[str], None] = lambda _: None,
    comet: Comet | None = None,
    for_comet: Callable[[str], bool] = lambda _: True,
) -> Results:
    """Read and score all results. Earlier scores of the same hypotheses are reused.

    for_comet: the names of the rows that COMET scores
    """
    plan = read_record(output / "plan.json")
    if plan is None:
        raise InputError(f"{output}: has no results yet: expected plan.json, which `knnmt reproduce` writes")
    domains = sorted((path.parent.name for path in output.glob("*/text.json")), key=_papers_first)
    texts = {each: DomainText.of_record(read_record(output / each / "text.json") or {}) for each in domains}
    scored = read_record(output / _SCORES) or {}
    rows: dict[tuple[str, str], RowResult] = {}
    speeds: dict[tuple[str, int], dict[str, Any]] = {}
    chosen: dict[str, dict[str, dict[str, Any]]] = {"other half": {}, "variants": {}, "probes": {}}
    validated: dict[tuple[str, str], list[str]] = {}
    for domain in domains:
        for path in sorted((output / domain).rglob("*.json")):
            record = read_record(path) or {}
            if "others" in record:  # what `harm` reads
                continue
            if "hypotheses" in record:
                name, scorer = record["row"], comet if for_comet(record["row"]) else None
                before = scored.get(f"{domain}/{name}")
                known = _scored(record["hypotheses"], texts[domain], plan["target language"], before, scorer)
                if known != before:
                    scored[f"{domain}/{name}"] = known
                    write_record(output / _SCORES, scored)
                scores = Scores(Score(**known["bleu"]), Score(**known["chrf"]))
                rows[domain, name] = RowResult(record, scores, Score(**known["comet"]) if "comet" in known else None)
            elif "batch_size" in record:
                speeds[domain, record["batch_size"]] = record
            elif "validated" in record:
                validated[domain, record["row"]] = record["validated"]
            for kind, of_domains in chosen.items():
                if kind in record:
                    of_domains[domain] = record["other half"] if kind == "other half" else record
        tell(f"{domain}: {sum(each == domain for each, _ in rows)} rows scored")
    stores = {each: read_record(output / each / "store.json") or {} for each in domains}
    others, gates, probes = chosen.values()
    return Results(tuple(domains), rows, speeds, texts, stores, plan, others, gates, probes, validated)


def _papers_first(domain: str) -> tuple[int, str]:
    place = paper.place_of(domain)
    return (len(paper.DOMAINS) if place is None else place), domain


def _scored(
    hypotheses: Sequence[str], text: DomainText, language: str, earlier: dict[str, Any] | None, comet: Comet | None
) -> dict[str, Any]:
    """The scores of a record: earlier ones of the same hypotheses, and those that were missing."""
    of = hashlib.sha256("\n".join([*hypotheses, *text.references]).encode()).hexdigest()
    known = earlier if earlier is not None and earlier["of"] == of else None
    if known is None:
        known = {"of": of, **asdict(score(hypotheses, text.references, language))}
    if comet is not None and known.get("comet", {}).get("signature") != comet.signature:
        known = {**known, "comet": asdict(comet.score(text.sources, hypotheses, text.references))}
    return known
