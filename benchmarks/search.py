"""Every kind of index on one store: recall and total variation against time, and bytes per entry.

    python benchmarks/search.py STORE [--kinds all] [--rounds 15] [--sentences 200]

Queries are the entries of sampled sentences of the store; a query must not find its own sentence. Every kind is
searched with its own settings. All kinds take turns within every round, with batches of 5, 40 and 80 queries; times are
medians. `benchmarks/stores.py` makes a store of real text with more than a million entries.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from knnmt.calibration.estimates import DEFAULT_K, Calibration
from knnmt.calibration.fidelity import BATCHES, fidelity
from knnmt.calibration.held_out import sample
from knnmt.datastore.store import Datastore
from knnmt.engine.precision import cpu_name
from knnmt.index.base import Index
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import EXACT, KINDS
from knnmt_lab.scripts import argument_parser, print_header, print_row


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    store = Datastore.open(arguments.store)
    entries = Entries(store)
    calibration = Calibration.of(arguments.store)
    temperature = calibration.temperature if calibration else 30.0
    held_out = sample(entries, arguments.sentences)
    print(f"{cpu_name()}, {arguments.threads} threads; {entries.entries:,} entries of {entries.dim} dimensions")
    print(f"{len(held_out.queries):,} queries, k {DEFAULT_K}, T {temperature:.3g}", flush=True)

    exact = ExactIndex(entries)
    true = held_out.search(exact, DEFAULT_K)
    indexes: dict[str, Index] = {EXACT: exact}
    facts = {EXACT: ["1.000", "0.0000", "0", "0"]}
    for name in arguments.kinds:
        started = time.perf_counter()
        built = FaissIndex.train_and_add(entries, KINDS[name])
        seconds = time.perf_counter() - started
        with tempfile.TemporaryDirectory() as scratch:
            built.write(Path(scratch) / "index")
            size = (Path(scratch) / "index").stat().st_size / entries.entries
        found = fidelity(held_out.queries, held_out.search(built, DEFAULT_K), true, entries, temperature)
        label = f"{name} {built.settings.signature}"
        indexes[label] = built
        facts[label] = [f"{found.recall:.3f}", f"{found.variation:.4f}", f"{size:.0f}", f"{seconds:.0f}"]
        print(f"built {label}", flush=True)

    times: dict[tuple[str, int], list[float]] = {(name, size): [] for name in indexes for size in BATCHES}
    for turn in range(arguments.rounds):
        for size in BATCHES:
            rows = (torch.arange(size) + turn * size) % len(held_out.queries)
            for name, index in indexes.items():
                if name == EXACT and turn > 3:
                    continue
                started = time.perf_counter()
                index.search(held_out.queries[rows], DEFAULT_K)
                times[name, size].append(1000 * (time.perf_counter() - started))
    print_header(
        "index, probes~reach/re-ranked", "recall@8", "variation", "bytes an entry", "build s", "ms for 5", "40", "80"
    )
    for name in indexes:
        medians = [f"{statistics.median(times[name, size]):.2f}" for size in BATCHES]
        print_row(name, *facts[name], *medians)


if __name__ == "__main__":
    main()
