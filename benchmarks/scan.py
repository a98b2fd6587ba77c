"""Where the time of retrieval by segment goes on a CPU, step by step and sentence by sentence.

    python benchmarks/scan.py STORE=DOMAIN [STORE=DOMAIN ...] [--segments 16 64 256 512 1024] [--batches 1 8 32]
        [--beams 5 1] [--lines 64] [--rounds 3] [--threads 2]

Development lines of the domain are translated by the model alone and with each number of segments, in turns within
every round; a number of segments that the store does not have means all of it. Of the rounds, medians count. Columns:

    entries        that a sentence is searched in, on average
    MB a step      of codes that all sentences of a batch read at a step, if none share entries
    choice, codes  choosing segments, and putting together the codes of their entries: µs for each token
    search         scan, measuring of near keys and mixture: µs for each token
    model          encoder, decoder and vocabulary: µs for each token
    / alone        tokens a second, of those of the model alone

A machine's limits stand before the table: bytes a second that all threads read together, by size. Text comes from
KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import knnmt
from knnmt import OpenStore, Translator, spread
from knnmt.datastore.store import Datastore
from knnmt.engine.precision import cpu_name
from knnmt.native import library
from knnmt_lab.scripts import argument_parser, print_header, print_row, read_domain

NUMBERS = 16  # bytes of a key besides its code


def gigabytes_a_second(size: int, threads: int) -> float:
    """How fast this many threads read blocks of their own of this many bytes."""
    blocks = [torch.ones(size // 4) for _ in range(threads)]
    times = max(1, (1 << 28) // size)

    def read(block: torch.Tensor) -> None:
        for _ in range(times):
            block.sum()

    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(read, blocks))
        return threads * times * size / (time.perf_counter() - started) / 1e9


def print_limits(threads: int) -> None:
    torch.set_num_threads(1)
    for size in (1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 27):
        print(f"{size / 2**20:g} MiB a thread: {gigabytes_a_second(size, threads):.1f} GB/s")


def measure(store: str, domain: str, arguments: argparse.Namespace) -> None:
    translator = Translator("de-en", device="cpu", dtype="float32", threads=arguments.threads)
    lines = [pair.source for pair in spread(read_domain(domain, "dev"), arguments.lines)]
    snapshot = OpenStore(Datastore.open(store)).snapshot
    sources = translator.engine.tokenizer.encode_sources(lines)
    native = library()
    kept = snapshot.index.entries.codes(native).kept if native is not None else 0
    entries = {0: 0.0}
    for segments in arguments.segments:
        chosen = snapshot.choose_segments(sources, segments).entries
        entries[segments] = sum(map(len, chosen)) / len(chosen)
    for beam in arguments.beams:
        for batch in arguments.batches:
            measure_cell(translator, lines, store, beam, batch, entries, kept, arguments.rounds)


def measure_cell(
    translator: Translator,
    lines: list[str],
    store: str,
    beam: int,
    batch: int,
    entries: dict[int, float],
    kept: int,
    rounds: int,
) -> None:
    """entries: of a sentence, for each number of segments; 0 for the model alone"""
    times: dict[int, list[dict[str, float]]] = {segments: [] for segments in entries}
    for number in range(rounds + 1):  # the first is a warm-up
        for segments in entries:
            retrieving: dict[str, Any] = {"datastore": store, "segments": segments} if segments else {}
            with knnmt.stage_times() as timings:
                found = translator.translate(lines, batch_size=batch, beam=beam, **retrieving)
            if number:
                tokens = sum(len(each.tokens) for each in found)
                spent = {stage: 1e6 * seconds / tokens for stage, seconds in timings.seconds.items()}
                times[segments].append({**spent, "whole": 1e6 * timings.total_seconds / tokens})
    alone = statistics.median(each["whole"] for each in times[0])
    for segments, rows in times.items():

        def median(*stages: str, rows: list[dict[str, float]] = rows) -> float:
            return statistics.median(sum(each.get(stage, 0) for stage in stages) for each in rows)

        print_row(
            *(Path(store).name, beam, batch, segments or "alone", f"{entries[segments]:,.0f}"),
            f"{batch * entries[segments] * (kept / 2 + NUMBERS) / 1e6:.1f}",
            *(f"{median(stage):,.0f}" for stage in ("segments", "codes", "retrieval")),
            f"{median('encoder', 'decoder', 'output'):,.0f}",
            f"{1e6 / median('whole'):,.0f}",
            f"{alone / median('whole'):.2f}",
        )


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("stores", nargs="+", metavar="STORE=DOMAIN")
    parser.add_argument("--segments", type=int, nargs="+", default=[16, 64, 256, 512, 1024])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 1])
    parser.add_argument("--lines", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    print(f"{cpu_name()}, {arguments.threads} threads, load {os.getloadavg()[0]:.1f}")
    print_limits(arguments.threads)
    columns = ("store", "beam", "batch", "segments", "entries", "MB a step", "choice", "codes", "search", "model")
    print_header(*columns, "tokens/s", "/ alone")
    for each in arguments.stores:
        store, _, domain = each.partition("=")
        measure(store, domain, arguments)


if __name__ == "__main__":
    main()
