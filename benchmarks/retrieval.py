"""Generation speed and quality with retrieval, as a ratio to the model alone and to CTranslate2.

    python benchmarks/retrieval.py DIRECTORY [--sentences 64] [--scored 200] [--rounds 3] [--batch-sizes 1 8 16]

DIRECTORY holds the stores that `benchmarks/stores.py` makes. Each system runs in a process of its own, one works at a
time, and all take turns within every round. Tokens are those of the best hypotheses, beam 5, end of sentence counted;
ratios are of medians. Searches saved count every step, and all but first steps, as the paper's counters do. BLEU is
sacrebleu's on the first `--scored` development lines of the software domain (batches of 16); the speed is measured on
the first `--sentences` of them, a quarter of those for batches of one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from decoding import MODEL, convert
from knnmt.engine.precision import cpu_name
from stores import domain_file, read_pairs

SYSTEMS: dict[str, dict[str, Any]] = {
    "base": {},
    "CTranslate2 float32": {"ct2": True},
    "kNN-MT exact": {"store": "full", "exact": True},
    "kNN-MT": {"store": "full"},
    "kNN-MT fixed λ": {"store": "full", "settings": {"fading": False}},
    "cache": {"store": "full", "settings": {"cache": True}},
    "PCA": {"store": "pca"},
    "pruning": {"store": "pruned"},
    "PCA + cache": {"store": "pca", "settings": {"cache": True}},
    "PCA + pruning": {"store": "pca-pruned"},
    "PCA + cache + pruning": {"store": "pca-pruned", "settings": {"cache": True}},
}


def serve(name: str, directory: Path, threads: int, ct2: str, cache: str) -> None:
    """Answer each request (texts and batch size, a JSON line) with translations and what they took."""
    import torch

    torch.set_num_threads(threads)
    system = SYSTEMS[name]
    statistics_of: Any = None
    if system.get("ct2"):
        translate = ctranslate2_system(ct2, threads)
    else:
        from knnmt.translator.translator import Translator

        settings = dict(system.get("settings", {}))
        if settings.get("cache"):
            settings["cache"] = cache
        store = directory / system["store"] if "store" in system else None
        translator = Translator(device="cpu", datastore=store, exact=system.get("exact", False), **settings)
        statistics_of = translator.statistics

        def translate(texts: list[str], size: int) -> tuple[list[str], int]:
            found = translator.translate(texts, batch_size=size)
            return [each.text for each in found], sum(len(each.tokens) for each in found)

    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        texts, tokens = translate(request["texts"], request["size"])
        seconds = time.perf_counter() - started
        saved = (statistics_of.saved(), statistics_of.saved(False)) if statistics_of else (0.0, 0.0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps([texts, tokens, seconds, saved, peak, _resident_mib()]), flush=True)


def _resident_mib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def ctranslate2_system(directory: str, threads: int) -> Any:
    import ctranslate2

    from knnmt.engine.tokenizer import load_tokenizer

    engine = ctranslate2.Translator(directory, compute_type="float32", inter_threads=1, intra_threads=threads)
    tokenizer = load_tokenizer(MODEL)
    vocabulary = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    number_of = {tokenizer.piece(number): number for number in range(vocabulary)}

    def translate(texts: list[str], size: int) -> tuple[list[str], int]:
        sources = tokenizer.encode_sources(texts)
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        found: list[list[str]] = [[] for _ in sources]
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            pieces = [[tokenizer.piece(token) for token in sources[i]] for i in batch]
            for i, result in zip(batch, engine.translate_batch(pieces, beam_size=5), strict=True):
                found[i] = result.hypotheses[0]
        texts_found = [tokenizer.decode([number_of[piece] for piece in each]) for each in found]
        return texts_found, sum(len(each) + 1 for each in found)

    return translate


class System:
    """A system's process, asked over a pipe."""

    def __init__(self, name: str, arguments: argparse.Namespace, ct2: Path) -> None:
        command = [sys.executable, __file__, str(arguments.directory), "--serve", name, "--ct2", str(ct2)]
        command += ["--threads", str(arguments.threads), "--cache", arguments.cache]
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or sys.exit("a system stopped; its message stands above"))

    def run(self, texts: list[str], size: int) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"texts": texts, "size": size}) + "\n")
        self.process.stdin.flush()
        return self._answer()


def compare(systems: dict[str, System], arguments: argparse.Namespace) -> None:
    import sacrebleu

    pairs = list(islice(read_pairs(domain_file("dev")), max(arguments.scored, arguments.sentences)))
    sources = [pair.source for pair in pairs]
    facts = {}
    for name, system in systems.items():
        texts, _, _, saved, _, resident = system.run(sources[: arguments.scored], 16)
        bleu = sacrebleu.corpus_bleu(texts, [[pair.target for pair in pairs[: arguments.scored]]]).score
        facts[name] = f"{bleu:.2f} | {saved[0]:.0%} ({saved[1]:.0%}) | {resident:,}"
        print(f"{name}: BLEU {bleu:.2f}", flush=True)
    speeds: dict[tuple[str, int], list[float]] = {}
    for _ in range(arguments.rounds):
        for size in arguments.batch_sizes:
            some = sources[: arguments.sentences if size > 1 else arguments.sentences // 4]
            for name, system in systems.items():
                if name == "kNN-MT exact" and size == 1:
                    continue
                _, tokens, seconds, *_ = system.run(some, size)
                speeds.setdefault((name, size), []).append(tokens / seconds)
    print(
        "\n| system | BLEU | searches saved | resident MiB | "
        + " | ".join(f"batch {size}: tokens/s | / base | / CTranslate2" for size in arguments.batch_sizes)
        + " |"
    )
    print("|---" * (4 + 3 * len(arguments.batch_sizes)) + "|")
    medians = {key: statistics.median(values) for key, values in speeds.items()}
    for name in systems:
        cells = []
        for size in arguments.batch_sizes:
            own = medians.get((name, size))
            others = [medians.get((other, size)) for other in ("base", "CTranslate2 float32")]
            cells += [
                f"{own:.0f}" if own else "-",
                *(f"{own / other:.2f}" if own and other else "-" for other in others),
            ]
        print(f"| {name} | {facts[name]} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--scored", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--cache", default="6", help="τ, a distance or a quantile")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--ct2", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.directory, arguments.threads, arguments.ct2, arguments.cache)
        return
    print(f"{cpu_name()}, {arguments.threads} threads, {arguments.rounds} rounds, cache {arguments.cache}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        needs_ct2 = any(SYSTEMS[name].get("ct2") for name in arguments.systems)
        ct2 = convert(Path(scratch) / "ct2") if needs_ct2 else Path()
        systems = {name: System(name, arguments, ct2) for name in arguments.systems}
        try:
            compare(systems, arguments)
        finally:
            for system in systems.values():
                system.process.kill()


if __name__ == "__main__":
    main()
