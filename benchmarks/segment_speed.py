"""The speed of retrieval by segment on a CPU: decoding beside the model alone, and the choice of segments alone.

    python benchmarks/segment_speed.py decoding [--pairs 15000] [--entries 0 1300000 20000000] [--segments 64 128]
        [--beams 5] [--batches 1 8 16] [--rounds 5] [--sentences 64] [--threads 2]
        [--place DIRECTORY] [--stores PATH ...]
    python benchmarks/segment_speed.py choice [--sizes 200000 1000000 20000000] [--segments 64] [--queries 200]
        [--bm25s]

decoding: a store of `--pairs` training pairs of the medical domain (0: all) is built, once for each directory. For each
larger number of `--entries`, a store is made up from it, for speed only (0: the store itself): keys are moved a little,
and every third source token is replaced by another, drawn by frequency. `--stores` names stores to measure instead;
the sentences then come from their domain, which is the first part of their name. Systems take turns in every round; the
ratio is that of medians. With one thread, time is CPU time, which other programs disturb less. Memory is the anonymous
memory (without the store's memory maps) of a separate process after 1,000 sentences, greedy, batch 16.

choice: `--sizes` sources, first those of the four domains in turn, then made-up ones. Queries are development sources
of the four domains, one per call and all in one call. Time is CPU time of one thread for each query, without
tokenization. With --bm25s, that library (exact BM25, the same tokens) finds as many candidates as knnmt considers.
20 million sources take 7 GiB. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import harm
from knnmt import spread
from knnmt.datastore.building import new_store, publish_new_store
from knnmt.datastore.manifest import SEGMENTS, SegmentRecord, StoredFile
from knnmt.datastore.postings import posting_arrays
from knnmt.datastore.segment import Segment, source_arrays
from knnmt.datastore.slices import write_segment
from knnmt.datastore.store import Datastore
from knnmt.engine.precision import cpu_name
from knnmt.segments.covering import CANDIDATES, MIN_CANDIDATES, SourceIndex
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import DOMAINS, argument_parser, print_header, print_row, read_domain

Array = Any
DOMAIN = "medical"


def anonymous_mib() -> int:
    """Memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) >> 10


def other_tokens(tokens: Array, chance: np.random.Generator) -> Array:
    """The same tokens, with every third replaced by one of the others."""
    changed = tokens.copy()
    which = chance.random(len(tokens)) < 1 / 3
    changed[which] = tokens[chance.integers(0, len(tokens), int(which.sum()))]
    return changed


# Decoding -------------------------------------------------------------------------------------------------------------


def made_up(real: Datastore, place: Path, entries: int) -> None:
    """A store of this many entries: the real ones, then the same repeatedly with changes."""
    chance = np.random.default_rng(0)
    size = float(np.abs(real.segments[0].arrays["keys"][:1000].astype(np.float32)).mean())
    noise = chance.normal(0, 0.2 * size, (1 << 16, real.manifest.dim)).astype(np.float16)
    with new_store(place, "making") as making:
        records: list[SegmentRecord] = []
        while (have := sum(record.entries for record in records)) < entries:
            segment = real.segments[len(records) % len(real.segments)]
            arrays = dict(segment.arrays)
            if len(records) >= len(real.segments):
                arrays["keys"] = arrays["keys"].copy()
                for begin in range(0, len(arrays["keys"]), len(noise) - 1000):
                    some = arrays["keys"][begin : begin + len(noise) - 1000]
                    some += noise[(shift := int(chance.integers(1000))) : shift + len(some)]
                arrays["source_tokens"] = other_tokens(arrays["source_tokens"], chance)
                arrays |= posting_arrays(arrays["source_tokens"], arrays["source_offsets"])
                arrays["source_hashes"] = chance.integers(-(1 << 62), 1 << 62, len(arrays["source_hashes"]))
            records.append(write_segment(making / SEGMENTS, f"{len(records):05}-made", arrays))
            print(f"\r{have:,} entries", end="", file=sys.stderr)
        print(file=sys.stderr)
        publish_new_store(making, place, replace(real.manifest, segments=tuple(records), next_segment=len(records)))
    for path in (real.path).glob("*.json"):  # settings
        if not (place / path.name).exists():
            (place / path.name).write_bytes(path.read_bytes())


def stores(arguments: argparse.Namespace, place: Path, translator: Translator) -> Iterator[tuple[str, Path]]:
    if arguments.stores:
        yield from ((path.name, path) for path in arguments.stores)
        return
    real = place / f"{DOMAIN}-{arguments.pairs}"
    if not real.exists():
        harm.build(real, DOMAIN, arguments.pairs, translator)
    for entries in arguments.entries:
        larger = place / f"{DOMAIN}-{arguments.pairs}-to-{entries}"
        if entries and not larger.exists():
            made_up(Datastore.open(real), larger, entries)
        store = Datastore.open(larger if entries else real)
        yield f"{store.entries / 1e6:.1f} M", store.path


def measure_decoding(arguments: argparse.Namespace, place: Path) -> None:
    domain = arguments.stores[0].name.partition("-")[0] if arguments.stores else DOMAIN
    lines = [pair.source for pair in spread(read_domain(domain, "dev"), arguments.sentences)]
    translator = Translator(device="cpu", dtype="float32", threads=arguments.threads, settings="raw")
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    systems: dict[str, dict[str, Any]] = {"base": {}}
    for name, store in stores(arguments, place, translator):
        for segments in arguments.segments:
            systems[f"{name}, {segments} segments"] = {"datastore": store, "segments": segments}
    kind = "CPU" if arguments.threads == 1 else "wall-clock"
    print(f"{cpu_name()}, {arguments.threads} threads, {kind} time, load {os.getloadavg()[0]:.1f}")
    print_header("system", "beam", "batch", "tokens/s", "/ base", "rounds")
    for beam, size in product(arguments.beams, arguments.batches):
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(arguments.rounds + 1):  # the first is a warm-up
            for name, asked in systems.items():
                started = clock()
                found = translator.translate(lines, batch_size=size, beam=beam, **asked)
                if number:
                    rates[name].append(sum(len(each.tokens) for each in found) / (clock() - started))
        base = rates["base"]
        for name, mine in rates.items():
            ratios = [one / other for one, other in zip(mine, base, strict=True)]
            ratio = f"{statistics.median(mine) / statistics.median(base):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
            print_row(name, beam, size, f"{statistics.median(mine):,.0f}", ratio)
    if arguments.stores:
        return
    for name, asked in systems.items():
        print(f"{name}: {remembered(asked)} MiB anonymous after 1,000 sentences", flush=True)


def remembered(asked: dict[str, Any]) -> int:
    """Anonymous MiB of a process that has translated 1,000 sentences."""
    of_store = ["--store", asked["datastore"], "--segments", asked["segments"]] if asked else []
    command = [sys.executable, __file__, "memory", *map(str, of_store)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def remember(arguments: argparse.Namespace) -> None:
    lines = [pair.source for pair in spread(read_domain(DOMAIN, "dev"), 1000)]
    asked: dict[str, Any] = {"datastore": arguments.store, "segments": arguments.segments[0]} if arguments.store else {}
    Translator(device="cpu", dtype="float32", settings="raw").translate(
        lines, batch_size=16, beam=1, max_tokens=100, **asked
    )
    print(anonymous_mib())


# The choice -----------------------------------------------------------------------------------------------------------


def text_of(part: str, most: int) -> list[list[int]]:
    """Token ids, without the end token, of sources of all domains, in turn until each ends."""
    from knnmt.engine.loading import load_engine

    tokenizer = load_engine("de-en", device="cpu", dtype="float32").tokenizer
    turns = zip_longest(*([pair.source for pair in read_domain(domain, part)[:most]] for domain in DOMAINS))
    sources = [source for turn in turns for source in turn if source is not None]
    return [ids[:-1] for ids in tokenizer.encode_sources(sources[:most])]


def segment_of(tokens: Array, offsets: Array, number: int) -> Segment:
    """A segment with sources only."""
    arrays = {"source_tokens": tokens, "source_offsets": offsets, **posting_arrays(tokens, offsets)}
    arrays["sentences"] = np.empty(0, np.int32)
    record = SegmentRecord(StoredFile("s", 0, f"{number:064x}"), len(offsets) - 1, 0)
    return Segment(record, arrays, np.empty(0, np.int32), (), Path("made"), 1 << 20)


def segments_of(real: list[list[int]], count: int) -> Iterator[Segment]:
    chance = np.random.default_rng(0)
    whole = source_arrays(real[:count])
    tokens, offsets = whole["source_tokens"], whole["source_offsets"]
    made = 0
    while made < count:
        offsets = offsets[: count - made + 1]
        mine = tokens[: offsets[-1]]
        yield segment_of(mine if not made else other_tokens(mine, chance), offsets, made)
        made += len(offsets) - 1


def milliseconds(work: Callable[[list[int]], object], queries: list[list[int]]) -> str:
    work(queries[0])
    took = []
    for query in queries:
        started = time.thread_time()
        work(query)
        took.append(1000 * (time.thread_time() - started))
    return f"{statistics.median(took):.2f} ({np.quantile(took, 0.9):.2f})"


def chosen(index: SourceIndex, count: int, query: list[int]) -> object:
    return index.choose([query], count)


def measure_choice(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    queries = text_of("dev", arguments.queries)
    real = text_of("train", max(arguments.sizes))
    count = arguments.segments[0]
    print(f"{cpu_name()}; {count} segments; ms of CPU time a sentence, median (90 %)")
    print_header("sources", "compiled", "in one call", "NumPy", "bm25s", "MiB of the index, anonymous", "of bm25s")
    for size in arguments.sizes:
        parts = list(segments_of(real, size))
        before = anonymous_mib()
        index = SourceIndex(parts)
        mine = anonymous_mib() - before
        choose = partial(chosen, index, count)
        compiled = milliseconds(choose, queries)
        started = time.thread_time()
        index.choose(queries, count)
        together = 1000 * (time.thread_time() - started) / len(queries)
        with patch("knnmt.segments.covering.library", lambda: None):
            plain = milliseconds(choose, queries[:20])
        theirs = ("", "")
        if arguments.bm25s and size <= 1_000_000:
            theirs = with_bm25s(parts, queries, max(MIN_CANDIDATES, CANDIDATES * count))
        print(
            f"| {size:,} | {compiled} | {together:.2f} | {plain} | {theirs[0]} | {mine:,} | {theirs[1]} |", flush=True
        )


def with_bm25s(parts: list[Segment], queries: list[list[int]], count: int) -> tuple[str, str]:
    import bm25s  # type: ignore[import-not-found]

    sources = []
    for part in parts:
        sources += np.split(part.arrays["source_tokens"], part.arrays["source_offsets"][1:-1])
    before = anonymous_mib()
    kinds = 1 + max(int(part.arrays["source_tokens"].max()) for part in parts)
    found = bm25s.BM25(k1=1.2, b=0.75)
    found.index(
        ([each.tolist() for each in sources], {str(token): token for token in range(kinds)}), show_progress=False
    )
    memory = anonymous_mib() - before
    asked = lambda query: found.retrieve([list(map(str, query))], k=count, n_threads=1, show_progress=False)  # noqa: E731
    return milliseconds(asked, queries[:20]), f"{memory:,}"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=["decoding", "choice", "memory"])
    parser.add_argument("--pairs", type=int, default=15_000)
    parser.add_argument("--entries", type=int, nargs="+", default=[0, 1_300_000, 20_000_000])
    parser.add_argument("--segments", type=int, nargs="+", default=[64])
    parser.add_argument("--beams", type=int, nargs="+", default=[5])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--place", type=Path)
    parser.add_argument("--stores", type=Path, nargs="+")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000, 20_000_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--bm25s", action="store_true")
    parser.add_argument("--store", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "memory":
        remember(arguments)
    elif arguments.what == "choice":
        measure_choice(arguments)
    elif arguments.place:
        measure_decoding(arguments, arguments.place)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            measure_decoding(arguments, Path(scratch))


if __name__ == "__main__":
    main()
