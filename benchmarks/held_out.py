"""What `knnmt adapt` reports of a memory beside what other pages of the same handbook get.

    python benchmarks/held_out.py DIRECTORY [--domain business] [--pairs 15000] [--models de-en en-de] [--threads 2]

`adapt` makes a store from the first training pairs, in the order of their pages, and measures its gain on the stretches
that it holds out; all of the reported half is translated. Then `evaluate` translates the reported half of the
development text, which comes from other pages, by the model alone and with that store. Segments whose source the store
holds are left out. DIRECTORY keeps stores and translations: the same command resumes. Text comes from KNNMT_DATA
(default ../shared).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from knnmt import Translator, adapt, evaluate
from knnmt.adapting.gain import Gain
from knnmt.datastore.settings import read_settings
from knnmt.datastore.unfinished import is_unfinished
from knnmt.records import as_record
from knnmt_lab.scripts import argument_parser, directed, print_header, print_row, read_domain


def measure(arguments: argparse.Namespace, model: str) -> list[tuple[str, str, str, str]]:
    """Rows of what is measured on, and BLEU of the model alone and with the store."""
    translator = Translator(model, threads=arguments.threads)
    memory, dev = (directed(read_domain(arguments.domain, part), model) for part in ("train", "dev"))
    place = arguments.directory / f"{arguments.domain}-{arguments.pairs}-{model}"
    store, started = place / "store", time.perf_counter()
    if not store.exists() or is_unfinished(store):
        place.mkdir(parents=True, exist_ok=True)
        adapt(memory[: arguments.pairs], store, sample=1000, model=translator, on_message=print, verbose=True)
        print(f"{time.perf_counter() - started:.0f} s")
    gain = as_record(Gain, read_settings(store)["gain"])
    report = evaluate(dev, store, half="report", skip_known=True, model=translator, output=place / "scores")
    others = [(each.scores.bleu.value, each.scores.bleu.interval or 0.0) for each in report.systems]
    held_out = [(gain.base_bleu, gain.base_interval), (gain.bleu, gain.interval)]
    rows = []
    for name, sentences, scores in (
        ("held out", gain.translated, held_out),
        ("other pages", len(report.text.sources), others),
    ):
        alone, adapted = (f"{value:.1f} ± {interval:.1f}" for value, interval in scores)
        rows.append((model, f"{name}, {sentences} sentences", alone, adapted))
    return rows


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--domain", default="business")
    parser.add_argument("--pairs", type=int, default=15_000)
    parser.add_argument("--models", nargs="+", default=["de-en", "en-de"])
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    rows = [row for model in arguments.models for row in measure(arguments, model)]
    print_header("model", "measured on", "BLEU alone", "with the store")
    for row in rows:
        print_row(*row)


if __name__ == "__main__":
    main()
