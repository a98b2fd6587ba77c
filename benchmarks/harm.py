"""The effect of a store on text of its own domain and of others: fixed λ against λ that fades with distance.

    python benchmarks/harm.py [--pairs 15000] [--lines 300] [--own-lines 2000] [--device cuda] [--hypotheses FILE]
    python benchmarks/harm.py --score FILE

For each of the four domains, a store of `--pairs` training pairs is built, with exact search and the settings that are
estimated from the store alone. The first `--own-lines` development lines of its own domain, and the first `--lines` of
each other domain, are translated by the model alone, with the store at its best fixed λ, and with fading λ; beam 5.
BLEU is from sacrebleu; if it is not installed, write the translations to a file and score them elsewhere. Text comes
from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from knnmt import spread
from knnmt.calibration.estimates import DEFAULT_K, calibrate
from knnmt.calibration.held_out import sample
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.retrieval.open_store import OpenStore
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import DOMAINS, argument_parser, print_header, print_row, read_domain


def build(place: Path, domain: str, pairs: int, translator: Translator, for_fast: bool = False) -> None:
    """Build a store of this many training pairs of a domain, 0 for all, with settings estimated from it alone."""
    memory = read_domain(domain, "train")
    chosen = spread(memory, pairs) if pairs else memory
    store = Datastore.build(place, chosen, translator.engine, BuildConfig(for_fast=for_fast))
    index = OpenStore(store, translator.engine.device, exact=True).index
    held_out = sample(index.entries)
    calibration = calibrate(held_out, held_out.search(index, DEFAULT_K), translator.engine)
    assert calibration is not None
    calibration.save(place)
    print(f"{domain}: {store.entries:,} entries; {calibration.config().signature()}", flush=True)


def translate_all(arguments: argparse.Namespace) -> dict[str, list[str]]:
    translator = Translator(device=arguments.device, dtype="float32", exact=True, settings="raw")
    own = {domain: [pair.source for pair in read_domain(domain, "dev")[: arguments.own_lines]] for domain in DOMAINS}
    found: dict[str, list[str]] = {}

    def run(name: str, domain: str, lines: int, **settings: object) -> None:
        started = time.perf_counter()
        results = translator.translate(own[domain][:lines], batch_size=100, max_tokens=200, **settings)  # type: ignore[call-overload]
        found[name] = [each.text for each in results]
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
        if arguments.hypotheses:
            arguments.hypotheses.write_text(json.dumps(found), encoding="utf-8")

    for domain in DOMAINS:
        run(f"base|{domain}", domain, arguments.own_lines)
    with tempfile.TemporaryDirectory() as scratch:
        for domain in DOMAINS:
            place = Path(scratch) / domain
            build(place, domain, arguments.pairs, translator)
            run(f"fixed|{domain}|{domain}", domain, arguments.own_lines, datastore=place, fading=False)
            run(f"fading|{domain}|{domain}", domain, arguments.own_lines, datastore=place)
            for other in DOMAINS:
                if other != domain:
                    for name, fading in (("fixed", False), ("fading", True)):
                        run(f"{name}|{domain}|{other}", other, arguments.lines, datastore=place, fading=fading)
            translator.memories.close(place)
    return found


def score(found: dict[str, list[str]]) -> None:
    import sacrebleu

    references = {domain: [pair.target for pair in read_domain(domain, "dev")] for domain in DOMAINS}

    def bleu(name: str, lines: int | None = None) -> float:
        texts = found[name][:lines]
        return float(sacrebleu.corpus_bleu(texts, [references[name.split("|")[-1]][: len(texts)]]).score)

    print_header("store", "own text: base", "fixed λ", "fading λ", "other text, BLEU against base: fixed λ", "fading λ")
    for domain in DOMAINS:
        own = [bleu(f"base|{domain}"), bleu(f"fixed|{domain}|{domain}"), bleu(f"fading|{domain}|{domain}")]
        others = [
            ", ".join(
                f"{other} {bleu(key) - bleu(f'base|{other}', len(found[key])):+.2f}"
                for other in DOMAINS
                if (key := f"{name}|{domain}|{other}") in found and other != domain
            )
            for name in ("fixed", "fading")
        ]
        print_row(domain, *(f"{each:.2f}" for each in own), *others)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=15_000)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--own-lines", type=int, default=2000)
    parser.add_argument("--device")
    parser.add_argument("--hypotheses", type=Path, help="write the translations here")
    parser.add_argument("--score", type=Path, help="score translations written before")
    arguments = parser.parse_args()
    if arguments.score:
        score(json.loads(arguments.score.read_text(encoding="utf-8")))
        return
    found = translate_all(arguments)
    if not arguments.hypotheses:
        score(found)


if __name__ == "__main__":
    main()
