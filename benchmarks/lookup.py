"""BLEU and loss of lookup in the segments that cover a source, beside lookup in the whole store, by size of the store.

    python benchmarks/lookup.py RESULTS [--domains medical law] [--pairs 1000 4000 15000] [--lookups whole 256 e30000]
        [--half choosing] [--lines 500] [--device cuda] [--stores DIRECTORY]
    python benchmarks/lookup.py RESULTS --table [--half reported]

A lookup is `whole` (exact), a number of segments, or `eN`: as many segments as hold N entries on average. Each has its
own k, T and λ: the best by likelihood on 300 pairs of the choosing half of dev. The other pairs of this half, or the
reported half, are translated in float32, beam 5, in batches of 64.

A lookup with all segments of a store is whole lookup, and is not translated again. RESULTS is a file with a JSON record
for each store and lookup. The same command goes on where it was interrupted. --table compares each lookup with the
whole store: the difference in BLEU with half of the 95% interval of 1,000 bootstrap resamples, which are the same for
both. `--lookups alone` translates without a store.

--losses: only tune, and print the loss of each lookup
--stores: has stores DOMAIN-PAIRS, or gets them (default: beside RESULTS). Text comes from KNNMT_DATA (../shared).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sacrebleu import BLEU

from knnmt import Translator, spread
from knnmt.adapting.development import Development, pass_over, searched
from knnmt.adapting.tuning_by_likelihood import tune_positions
from knnmt.config import RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves
from knnmt.datastore.overlap import unseen
from knnmt.datastore.store import Datastore
from knnmt.evaluation.scoring import RESAMPLES, Difference
from knnmt.records import as_record
from knnmt.retrieval.open_store import OpenStore
from knnmt_lab.scripts import argument_parser, print_header, print_row, read_domain

DOMAINS = ("business", "it", "law", "medical", "koran")
TUNING = 300  # pairs
ALONE, WHOLE = "alone", "whole"


@dataclass
class Results:
    """Records in a file, one per line, by their keys."""

    path: Path

    def __post_init__(self) -> None:
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        self.records: dict[tuple[Any, ...], Any] = {}
        for line in lines:
            *key, record = json.loads(line)
            self.records[tuple(key)] = record

    def add(self, key: tuple[Any, ...], record: Any) -> Any:
        self.records[key] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([*key, record], ensure_ascii=False) + "\n")
        return record


class Case:
    """A store, and the development text of its domain that it does not hold."""

    def __init__(self, place: Path, domain: str, pairs: int, translator: Translator) -> None:
        self.place, self.domain, self.pairs, self._translator = place, domain, pairs, translator
        if not place.exists():
            Datastore.build(place, spread(read_domain(domain, "train"), pairs), translator.engine)
        self.opened = OpenStore(Datastore.open(place), translator.engine.device, exact=True)
        choosing, self.reported = (unseen(self.opened.datastore, half) for half in halves(read_domain(domain, "dev")))
        self.tuning = spread(choosing, TUNING)
        tuned = {pair.source for pair in self.tuning}
        self.choosing = [pair for pair in choosing if pair.source not in tuned]

    def text(self, half: str, lines: int) -> list[SegmentPair]:
        return spread(self.choosing if half == "choosing" else self.reported, lines)

    def segments(self, lookup: str) -> int | None:
        """The number of segments of a lookup; None for the whole store."""
        manifest = self.opened.datastore.manifest
        if lookup == WHOLE:
            return None
        if lookup.startswith("e"):
            return -(-int(lookup[1:]) * manifest.live_sentences // manifest.live_entries)
        return int(lookup)

    def is_whole(self, lookup: str) -> bool:
        segments = self.segments(lookup)
        return segments is None or segments >= self.opened.datastore.manifest.live_sentences

    @cached_property
    def _passed(self) -> Development:
        return pass_over(self._translator.engine, self.opened, self.tuning)

    def tune(self, lookup: str) -> dict[str, Any]:
        """The settings that fit best, and the losses with them and of the model alone, in nats per token."""
        segments, started = self.segments(lookup), time.perf_counter()
        positions = searched(self._translator.engine, self.opened, self._passed, segments).positions()
        best = tune_positions(positions, scope=segments).fading
        return {
            "config": asdict(best.fading),
            "losses": [best.fading_loss, positions.loss(None)],
            "segments": segments,
            "seconds": time.perf_counter() - started,
        }

    def translate(self, config: RetrievalConfig | None, lines: Sequence[SegmentPair]) -> dict[str, Any]:
        started, cpu = time.perf_counter(), time.process_time()
        store = {} if config is None else {"datastore": self.place, "profile": config}
        results = list(self._translator.translate([pair.source for pair in lines], batch_size=64, **store))  # type: ignore[call-overload]
        return {
            "texts": [each.text for each in results],
            "references": [pair.target for pair in lines],
            "tokens": sum(len(each.tokens) for each in results),
            "seconds": [time.perf_counter() - started, time.process_time() - cpu],
        }


def measure(results: Results, case: Case, lookup: str, arguments: argparse.Namespace) -> None:
    if lookup != WHOLE and lookup != ALONE and case.is_whole(lookup):
        return
    config = None
    if lookup != ALONE:
        tuning_key = case.domain, case.pairs, lookup, "tuned"
        tuned = results.records.get(tuning_key) or results.add(tuning_key, case.tune(lookup))
        losses = ", ".join(f"{loss:.4f}" for loss in tuned["losses"])
        print(f"{case.domain} {case.pairs} {lookup} ({tuned['segments']}): losses {losses}", flush=True)
        config = as_record(RetrievalConfig, tuned["config"])
    if arguments.losses:
        return
    key = case.domain, case.pairs, lookup, arguments.half, arguments.lines
    if key not in results.records:
        found = results.add(key, case.translate(config, case.text(arguments.half, arguments.lines)))
        seconds, tokens = found["seconds"], found["tokens"]
        print(
            f"{' '.join(map(str, key))}: {tokens / seconds[1]:.0f} tokens per CPU second, {seconds[0]:.0f} s",
            flush=True,
        )


def show(results: Results, arguments: argparse.Namespace) -> None:
    print_header("pairs", "lookup", *arguments.domains, "average")
    for pairs in arguments.pairs:
        scores: dict[tuple[str, str], Any] = {}
        for lookup, domain in ((lookup, domain) for lookup in arguments.lookups for domain in arguments.domains):
            key = (domain, pairs, lookup, arguments.half, arguments.lines)
            if (found := results.records.get(key)) is not None:
                scores[lookup, domain] = resampled_bleu(found["texts"], found["references"])
        for lookup in arguments.lookups:
            cells, domain_scores = [], []
            for domain in arguments.domains:
                mine, whole = scores.get((lookup, domain)), scores.get((WHOLE, domain))
                if mine is None:
                    cells.append("")
                elif lookup == WHOLE or whole is None:
                    cells.append(f"{mine[0]:.2f}")
                    domain_scores.append(mine)
                else:
                    cells.append(in_words(mine - whole))
                    domain_scores.append(mine - whole)
            average = np.mean(domain_scores, axis=0) if domain_scores else None
            if average is not None:
                cells.append(f"{average[0]:.2f}" if lookup == WHOLE else in_words(average))
            print_row(pairs, lookup, *cells)


def resampled_bleu(texts: Sequence[str], references: Sequence[str]) -> Any:
    """BLEU of all lines, then of 1,000 random draws of as many; the same draws for equally many lines."""
    metric = BLEU(references=[references])
    statistics = np.array(metric._extract_corpus_statistics(texts, None))
    draws = np.random.default_rng(12345).choice(len(texts), size=(RESAMPLES, len(texts)))
    sums = np.stack([statistics.sum(0), *(statistics[draw].sum(0) for draw in draws)])
    return np.array([metric._compute_score_from_stats(each.tolist()).score for each in sums])


def in_words(differences: Any) -> str:
    """A difference with half of its interval, and a star if p is below 0.05."""
    found = Difference.of(differences)
    star = "*" if found.p_value is not None and found.p_value < 0.05 else ""
    return f"{float(differences[0]):+.2f} ± {(found.high - found.low) / 2:.2f}{star}"


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    translator = Translator("de-en", dtype="float32", exact=True, device=arguments.device)
    for pairs in arguments.pairs:
        for domain in arguments.domains:
            yield Case(arguments.stores / f"{domain}-{pairs}", domain, pairs, translator)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 4000, 15_000])
    parser.add_argument("--lookups", nargs="+", default=[WHOLE, "256", "512", "1024", "2048"])
    parser.add_argument("--half", choices=["choosing", "reported"], default="choosing")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--stores", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    arguments.stores = arguments.stores or arguments.results.parent
    results = Results(arguments.results)
    if arguments.table:
        show(results, arguments)
        return
    torch.set_num_threads(arguments.threads)
    for case in cases(arguments):
        for lookup in arguments.lookups:
            measure(results, case, lookup, arguments)


if __name__ == "__main__":
    main()
