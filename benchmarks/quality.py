"""BLEU and chrF of every system on every domain, with exact search.

    python benchmarks/quality.py [--pairs 15000] [--lines 2000] [--tuned] [--systems …] [--device cuda]
        [--hypotheses FILE]
    python benchmarks/quality.py [--tuned] --score FILE

For each domain a store of `--pairs` training pairs from all over its memory is built (0: all of them), with settings
estimated from the store alone; reduced and pruned stores are made from it. The first `--lines` development lines are
translated by each system, beam 5. With `--tuned`, half of the development text (by a hash of the sources) tunes k, T
and λ of each store by likelihood and trains its gate, and the lines are those of the other half; adaptive retrieval
needs that. Scores are sacrebleu's; where that is not installed, write the translations to a file and score them
elsewhere. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harm import DOMAINS, build, read
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import FastConfig, RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import divide, halves
from knnmt.datastore.overlap import overlap
from knnmt.datastore.store import Datastore
from knnmt.fitting.development import develop
from knnmt.fitting.gate_training import GateConfig, gate_text, train_gate
from knnmt.fitting.tuning import Tuned, tune
from knnmt.retrieval.gate import FILE as GATE
from knnmt.retrieval.open_store import OpenStore
from knnmt.translator.translator import Translator

PAPERS_CACHE = {"cache_scope": "batch", "cache_hits": True}
# The steps that make a system's store, and its settings.
SYSTEMS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "base": ([], {"datastore": None}),
    "kNN-MT": ([], {}),
    "kNN-MT, fixed λ": ([], {"fading": False}),
    **{f"Fast kNN-MT, c={candidates}": ([], {"fast": candidates}) for candidates in (128, 512)},
    **{f"adaptive α={alpha}": ([], {"gate": alpha}) for alpha in (0.25, 0.5, 0.75)},
    **{f"cache τ={tau}": ([], {"cache": tau}) for tau in (1, 2, 3, 4, 5, 6, 8)},
    **{f"cache τ={tau}, the paper's": ([], {"cache": tau, **PAPERS_CACHE}) for tau in (2, 4, 6, 8)},
    **{f"PCA d={dim}": ([f"pca{dim}"], {}) for dim in (256, 192, 128, 64)},
    **{f"pruning k={k}": ([f"prune{k}"], {}) for k in (1, 2, 5)},
    "PCA + cache": (["pca256"], {"cache": 4}),
    "PCA + pruning": (["pca256", "prune2"], {}),
    "PCA + cache + pruning": (["pca256", "prune2"], {"cache": 4}),
}


def made(directory: Path, steps: list[str], translator: Translator) -> Path:
    """The store of a domain after some steps; what is there already is taken as it is."""
    place = directory / "-".join(["full", *steps])
    if place.exists():
        return place
    *before, last = steps
    earlier = Datastore.open(made(directory, before, translator))
    if last.startswith("pca"):
        reduce(earlier, place, int(last.removeprefix("pca")))
    else:
        index = OpenStore(earlier, translator.engine.device, exact=True).index
        prune(earlier, place, index.search, int(last.removeprefix("prune")))
    print(f"{place.name}: {Datastore.open(place).entries:,} entries", flush=True)
    return place


class Tuning:
    """Settings of the stores of a domain for half of its development text; what was found for a store is kept."""

    def __init__(self, translator: Translator, domain: str) -> None:
        self._translator = translator
        self._pairs = halves(read(domain, "dev"))[0]
        self._found: dict[tuple[Path, int], Tuned] = {}

    def settings(self, store: Path, wanted: dict[str, Any]) -> dict[str, Any]:
        """Those of a system, with what was tuned where it says nothing itself."""
        candidates = wanted.get("fast", 0)
        tuned = self._found.get((store, candidates)) or self._tune(store, candidates)
        best = tuned.fixed.fixed if wanted.get("fading") is False else tuned.fading.fading
        print(f"  k {best.k}, T {best.temperature:.4g}, λ {best.interpolation_weight:g}", flush=True)
        if "gate" in wanted and not (store / GATE).exists():
            self._train_gate(store, best)
        return {"profile": best, **{name: value for name, value in wanted.items() if name not in ("fading", "fast")}}

    def _tune(self, store: Path, candidates: int) -> Tuned:
        opened = self._translator.memories.open(store).opened
        fast = FastConfig(candidates) if candidates else None
        pairs = overlap(opened.store, self._pairs).new
        tuned = tune(develop(self._translator.engine, opened, pairs, fast=fast).positions(), fast=fast)
        self._found[store, candidates] = tuned
        return tuned

    def _train_gate(self, store: Path, config: RetrievalConfig) -> None:
        opened = self._translator.memories.open(store).opened
        pairs = overlap(opened.store, self._pairs).new
        features = GateConfig().features
        texts = [
            gate_text(self._translator.engine, opened, some, config, None, features) for some in divide(pairs, 0.8)
        ]
        train_gate(opened, texts[0], texts[1], config, None).gate.write(store)


def reported(domain: str, tuned: bool) -> list[SegmentPair]:
    """The development text that systems are compared on."""
    pairs = read(domain, "dev")
    return halves(pairs)[1] if tuned else pairs


def translate_all(arguments: argparse.Namespace, stores: Path) -> dict[str, Any]:
    translator = Translator(device=arguments.device, dtype="float32", exact=True)
    found: dict[str, Any] = {}
    for domain in arguments.domains:
        lines = [pair.source for pair in reported(domain, arguments.tuned)[: arguments.lines]]
        tuning = Tuning(translator, domain) if arguments.tuned else None
        if not (stores / domain / "full").exists():
            for_fast = any("fast" in SYSTEMS[name][1] for name in arguments.systems)
            build(stores / domain / "full", domain, arguments.pairs, translator, for_fast)
        for name in arguments.systems:
            steps, settings = SYSTEMS[name]
            place = made(stores / domain, steps, translator)
            if tuning is not None and "datastore" not in settings:
                settings = tuning.settings(place, settings)
            settings = {"datastore": place, **settings}
            translator.statistics.rows = translator.statistics.searches = 0
            started = time.perf_counter()
            # As the paper did, where its cache is shared by a batch; the other systems do not depend on it.
            size = 8 if settings.get("cache_scope") == "batch" else 200
            results = translator.translate(lines, batch_size=size, max_tokens=200, **settings)
            seconds = time.perf_counter() - started
            saved = translator.statistics.saved() if settings["datastore"] else 1.0
            print(f"{domain} {name}: {seconds:.0f} s, {saved:.1%} saved", flush=True)
            found[f"{domain}|{name}"] = {
                "texts": [each.text for each in results],
                "saved": saved,
                "signature": translator.signature(translator.decoding(max_tokens=200), **settings),
                "tokens_per_second": sum(len(each.tokens) for each in results) / seconds,
            }
            if arguments.hypotheses:
                arguments.hypotheses.write_text(json.dumps(found), encoding="utf-8")
            if settings["datastore"]:
                translator.memories.close(settings["datastore"])
    return found


def score(found: dict[str, Any], references: dict[str, list[str]]) -> None:
    """A table of what was found as "domain|system": texts, the part of searches saved, and tokens a second."""
    import sacrebleu

    domains = list(dict.fromkeys(key.split("|")[0] for key in found))
    print("| system | " + " | ".join(f"{domain}: BLEU | chrF | saved | tokens/s" for domain in domains) + " |")
    print("|---" * (1 + 4 * len(domains)) + "|")
    for name in dict.fromkeys(key.split("|")[1] for key in found):
        cells = []
        for domain in domains:
            if f"{domain}|{name}" not in found:
                cells += ["-"] * 4
                continue
            result = found[f"{domain}|{name}"]
            texts = result["texts"]
            known = [references[domain][: len(texts)]]
            bleu, chrf = sacrebleu.corpus_bleu(texts, known), sacrebleu.corpus_chrf(texts, known)
            cells += [f"{bleu.score:.2f}", f"{chrf.score:.2f}", f"{result['saved']:.1%}"]
            cells += [f"{result['tokens_per_second']:.0f}"]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for key, result in found.items():
        print(f"{key}: {result.get('signature', '')}")


def run(
    parser: argparse.ArgumentParser,
    translate: Callable[[argparse.Namespace, Path], dict[str, Any]],
    text: Callable[[argparse.Namespace, str], list[SegmentPair]],
) -> None:
    """Translate and score, or one of both, as asked for. text: what is reported of a domain"""
    parser.add_argument("--device")
    parser.add_argument("--stores", type=Path, help="keep the stores here, and use those that are there")
    parser.add_argument("--hypotheses", type=Path, help="write the translations here")
    parser.add_argument("--score", type=Path, help="score translations written before")
    arguments = parser.parse_args()
    references = {domain: [pair.target for pair in text(arguments, domain)] for domain in arguments.domains}
    if arguments.score:
        score(json.loads(arguments.score.read_text(encoding="utf-8")), references)
        return
    with tempfile.TemporaryDirectory() as scratch:
        found = translate(arguments, arguments.stores or Path(scratch))
    if not arguments.hypotheses:
        score(found, references)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15_000)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--domains", nargs="*", default=DOMAINS, choices=DOMAINS)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--tuned", action="store_true", help="tune on half of the development text, report the other")
    run(parser, translate_all, lambda arguments, domain: reported(domain, arguments.tuned))


if __name__ == "__main__":
    main()
