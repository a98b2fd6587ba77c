"""What a memory adds to the shipped models: `knnmt adapt` on software and handbook text, in both directions.

    python benchmarks/memory_gain.py DIRECTORY [--domains business it] [--pairs 4000 15000] [--models en-de de-en]
    python benchmarks/memory_gain.py DIRECTORY --table

For each domain and model, `adapt` makes stores from that many training pairs, spread over all. It tunes on a part of
the choosing half of dev, and compares the tuned settings with the estimated ones on the rest of this half. The
reported half is translated by the model alone and with each store, beam 5. Segments whose source a store holds are
left out for all systems, and counted. DIRECTORY keeps stores and translations: the same command resumes. --table
prints the results as Markdown. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from knnmt import Translator, adapt, evaluate
from knnmt.adapting.holding_out import Plan
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import divide, halves, spread
from knnmt_lab.scripts import argument_parser, directed, print_header, read_domain


def planned(memory: Sequence[SegmentPair], choosing: Sequence[SegmentPair]) -> Plan:
    """Nothing of the memory is held out. Other digits of the hash than those of `halves` divide the choosing half."""
    tuning, confirming = divide(choosing, 0.5)
    digest = hashlib.sha256(repr([memory, tuning, confirming]).encode()).hexdigest()
    return Plan(lambda: memory, len(memory), (), frozenset(), tuning, confirming, digest)


def measure(directory: Path, domain: str, model: str, counts: Sequence[int]) -> None:
    translator = Translator(model, settings="raw")
    memory, dev = (directed(read_domain(domain, part), model) for part in ("train", "dev"))
    choosing, _ = halves(dev)
    stores = []
    for count in counts:
        store = directory / f"{domain}-{model}" / f"{count}"
        stores.append(store)
        if not store.exists():
            store.parent.mkdir(parents=True, exist_ok=True)
            adapt(planned(spread(memory, count), choosing), store, sample=0, model=translator, on_message=print)
    print(evaluate(dev, stores, half="report", skip_known=True, model=translator, output=stores[0].parent / "scores"))


def rows(directory: Path, domain: str, model: str) -> list[str]:
    path = directory / f"{domain}-{model}" / "scores" / "report.json"
    if not path.exists():
        return []
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    held = sum(report["left_out"].values())
    found = []
    for system in report["systems"]:
        scores = " | ".join(
            f"{each['value']:.1f} ± {each['interval']:.1f}" for each in (system["bleu"], system["chrf"])
        )
        p = system["bleu"]["p_value"]
        name = "none" if system["name"] == "base" else f"{int(system['name']):,} pairs"
        significance = "" if p is None else f"{p:.3f}"
        found.append(f"| {domain} | {model} | {name} | {scores} | {significance} | {report['segments']:,} | {held} |")
    return found


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--domains", nargs="+", default=["business", "it"])
    parser.add_argument("--models", nargs="+", default=["en-de", "de-en"])
    parser.add_argument("--pairs", nargs="+", type=int, default=[4000, 15000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = [(domain, model) for domain in arguments.domains for model in arguments.models]
    if not arguments.table:
        for setting in settings:
            measure(arguments.directory, *setting, arguments.pairs)
    print_header("domain", "model", "memory", "BLEU", "chrF", "p (BLEU)", "segments", "exact matches left out")
    for setting in settings:
        print("\n".join(rows(arguments.directory, *setting)))


if __name__ == "__main__":
    main()
