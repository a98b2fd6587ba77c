"""Retrieval by segment beside search of the whole store: likelihood, and BLEU.

    python benchmarks/segments.py [--pairs 0] [--segments 64 128] [--lines 1000] [--device cuda] [--hypotheses FILE]
    python benchmarks/segments.py --score FILE

For each of the four domains a store of `--pairs` training pairs is built, 0 for all. One half of the development text
tunes k, T and λ of each way by likelihood; `--lines` lines of the other half are translated, beam 5. The first way is
exact search of the whole store. BLEU is sacrebleu's, with a paired bootstrap against that; where it is not installed,
write the translations to a file and score them elsewhere. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from harm import DOMAINS, build, read
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.overlap import overlap
from knnmt.fitting.development import develop
from knnmt.fitting.tuning import tune
from knnmt.translator.translator import Translator

TUNING = 500  # pairs


def translate_all(arguments: argparse.Namespace) -> dict[str, Any]:
    translator = Translator(device=arguments.device, dtype="float32", exact=True)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for domain in arguments.domains:
            place = Path(scratch) / domain
            build(place, domain, arguments.pairs, translator)
            opened = translator.memories.open(place).opened
            first, second = (overlap(opened.datastore, half).new for half in halves(read(domain, "dev")))
            tuning, lines = spread(first, TUNING), second[: arguments.lines]
            found[f"{domain}|reference"] = [pair.target for pair in lines]
            for segments in (None, *arguments.segments):
                name = "whole" if segments is None else f"{segments} segments"
                positions = develop(translator.engine, opened, tuning, way=segments).positions()
                best = tune(positions, way=segments).fading
                held = develop(translator.engine, opened, spread(lines, TUNING), way=segments).positions()
                started = time.perf_counter()
                results = translator.translate(
                    [pair.source for pair in lines],
                    batch_size=100,
                    max_tokens=200,
                    datastore=place,
                    profile=best.fading,
                )
                seconds = time.perf_counter() - started
                found[f"{domain}|{name}"] = [each.text for each in results]
                print(
                    f"{domain}, {name}: loss {held.loss(best.fading):.4f} (alone {held.loss(None):.4f}); k {best.k}, T "
                    f"{best.fading.temperature:.3g}, λ to {best.fading.interpolation_weight:g}; {seconds:.0f} s",
                    flush=True,
                )
                if arguments.hypotheses:
                    arguments.hypotheses.write_text(json.dumps(found), encoding="utf-8")
            translator.memories.close(place)
    return found


def score(found: dict[str, Any]) -> None:
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    for domain in DOMAINS:
        names = [name for name in found if name.startswith(f"{domain}|") and not name.endswith("|reference")]
        if not names:
            continue
        systems = [(name.partition("|")[2], found[name]) for name in names]
        references = [found[f"{domain}|reference"]]
        for (name, _), (_, text) in zip(systems, [(each, found[each]) for each in names], strict=True):
            print(f"{domain:8} {name:14} BLEU {BLEU().corpus_score(text, references).score:.2f}")
        test = PairedTest(systems, {"BLEU": BLEU(references=references)}, None, test_type="bs", n_samples=1000)
        for name, results in zip([name for name, _ in systems], test()[1]["BLEU"], strict=True):
            print(f"{domain:8} {name:14} {results}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--segments", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--device")
    parser.add_argument("--hypotheses", type=Path)
    parser.add_argument("--score", type=Path)
    arguments = parser.parse_args()
    if arguments.score:
        score(json.loads(arguments.score.read_text(encoding="utf-8")))
        return
    found = translate_all(arguments)
    if not arguments.hypotheses:
        score(found)


if __name__ == "__main__":
    main()
