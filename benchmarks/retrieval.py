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
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from decoding import MODEL, convert
from knnmt.engine.precision import cpu_name
from knnmt.evaluation.bench.process import SystemProcess, start
from knnmt.evaluation.bench.running import Job, Turn, summarise, take_turns
from knnmt.evaluation.bench.worker import NO_SEARCHES, Searches, Translate, serve
from knnmt.evaluation.systems import System
from knnmt.retrieval.settings import RetrievalSettings
from stores import domain_file, read_pairs

BASE, CTRANSLATE2, EXACT = "base", "CTranslate2 float32", "kNN-MT exact"


def all_systems(directory: Path, cache: str) -> list[System]:
    """Every system but CTranslate2, which is none of ours."""
    cached = RetrievalSettings(cache=cache)
    return [
        System(BASE),
        System(EXACT, directory / "full", exact=True),
        System("kNN-MT", directory / "full"),
        System("kNN-MT fixed λ", directory / "full", settings=RetrievalSettings(fading=False)),
        System("cache", directory / "full", settings=cached),
        System("PCA", directory / "pca"),
        System("pruning", directory / "pruned"),
        System("PCA + cache", directory / "pca", settings=cached),
        System("PCA + pruning", directory / "pca-pruned"),
        System("PCA + cache + pruning", directory / "pca-pruned", settings=cached),
    ]


NAMES = [BASE, CTRANSLATE2, *(system.name for system in all_systems(Path(), "")[1:])]


def ctranslate2_system(directory: str, threads: int) -> tuple[Translate, Mapping[str, Any]]:
    import ctranslate2

    from knnmt.engine.tokenizer import load_tokenizer

    engine = ctranslate2.Translator(directory, compute_type="float32", inter_threads=1, intra_threads=threads)
    tokenizer = load_tokenizer(MODEL)
    vocabulary = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    number_of = {tokenizer.piece(number): number for number in range(vocabulary)}

    def translate(texts: list[str], size: int) -> tuple[list[str], int, Searches]:
        sources = tokenizer.encode_sources(texts)
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        found: list[list[str]] = [[] for _ in sources]
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            pieces = [[tokenizer.piece(token) for token in sources[i]] for i in batch]
            for i, result in zip(batch, engine.translate_batch(pieces, beam_size=5), strict=True):
                found[i] = result.hypotheses[0]
        texts_found = [tokenizer.decode([number_of[piece] for piece in each]) for each in found]
        return texts_found, sum(len(each) + 1 for each in found), NO_SEARCHES

    return translate, {}


def compare(systems: dict[str, SystemProcess], arguments: argparse.Namespace) -> None:
    import sacrebleu

    pairs = list(islice(read_pairs(domain_file("dev")), max(arguments.scored, arguments.sentences)))
    sources = [pair.source for pair in pairs]
    facts = {}
    for name, system in systems.items():
        system.about()
        job = Job(name, 16, sources[: arguments.scored])
        answer = system.ask(job.texts, job.batch_size)
        bleu = sacrebleu.corpus_bleu(answer.texts, [[pair.target for pair in pairs[: arguments.scored]]]).score
        (told,) = summarise([Turn(1, job, answer)])
        saved = "" if told.saved is None else f"{told.saved:.0%} ({told.saved_after_first_steps:.0%})"
        facts[name] = f"{bleu:.2f} | {saved} | {told.resident_mib:,}"
        print(f"{name}: BLEU {bleu:.2f}", flush=True)
    jobs = [
        Job(name, size, sources[: arguments.sentences if size > 1 else arguments.sentences // 4])
        for size in arguments.batch_sizes
        for name in systems
        if not (name == EXACT and size == 1)
    ]
    measured = summarise(list(take_turns(systems, jobs, arguments.rounds)))
    print(
        "\n| system | BLEU | searches saved | resident MiB | "
        + " | ".join(f"batch {size}: tokens/s | / base | / CTranslate2" for size in arguments.batch_sizes)
        + " |"
    )
    print("|---" * (4 + 3 * len(arguments.batch_sizes)) + "|")
    medians = {(each.system, each.batch_size): each.median for each in measured}
    for name in systems:
        cells = []
        for size in arguments.batch_sizes:
            own = medians.get((name, size))
            others = [medians.get((other, size)) for other in (BASE, CTRANSLATE2)]
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
    parser.add_argument("--systems", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--cache", default="6", help="τ, a distance or a quantile")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--serve-ctranslate2", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    threads = arguments.threads
    if arguments.serve_ctranslate2:
        serve(lambda: ctranslate2_system(str(arguments.directory), threads))
        return
    print(f"{cpu_name()}, {threads} threads, {arguments.rounds} rounds, cache {arguments.cache}", flush=True)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        ours = {system.name: system for system in all_systems(arguments.directory, arguments.cache)}
        running = {}
        for name in arguments.systems:
            if name == CTRANSLATE2:
                converted = str(convert(Path(scratch) / "ct2"))
                command = [sys.executable, __file__, converted, "--serve-ctranslate2", "--threads", str(threads)]
                process = SystemProcess(name, command, threads)
            else:
                process = start(ours[name], threads=threads, beam=5, device="cpu")
            running[name] = stack.enter_context(process)
        compare(running, arguments)


if __name__ == "__main__":
    main()
