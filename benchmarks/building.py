"""Building speed beside the bare forced pass, and the speed of each stage alone.

    python benchmarks/building.py [--text FILE.tsv] [--pairs 6000] [--rounds 5] [--batch-tokens 1024 ...]
        [--device cuda] [--processes N ...] [--finish]

All sides run the same batches in one process and take turns, after a short warm-up. "bare" is the encoder, the decoder
and the scores of the given tokens (a store keeps these as well), over the first 16 slices. "build" reads the whole
text, prepares it, cuts slices, runs the same passes, keeps the keys in float16, hashes and writes a store. CPU time
includes all threads and processes. Then each stage runs alone on the first slices, to show the slowest. --finish adds
the last part of `knnmt build`: settings, and an index if one is made. --pairs 0 takes the whole text. The most
important results are printed first and at once, so that the script can be stopped. Default text: the training pairs of
the software domain under KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from knnmt import stage_times, timing
from knnmt.config import BatchingConfig
from knnmt.corpus.opening import open_stream
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.datastore import building
from knnmt.datastore.building import BuildConfig, write_store
from knnmt.datastore.passing import begin_passes
from knnmt.datastore.prepared import Slice
from knnmt.datastore.slices import cut_slices, encode_slice, write_segment
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine
from knnmt.engine.batching import batches_by_length
from knnmt.engine.forced import force, pass_batching, score
from knnmt.engine.loading import load_engine
from knnmt.engine.precision import cpu_name
from knnmt_lab.scripts import argument_parser, domain_file, print_header, print_row

_SLICES = 16  # for the bare pass and for each stage alone
_WARMING = {"cpu": 500, "cuda": 10_000}  # pairs


def sample(path: Path | None, count: int, scratch: Path) -> Path:
    """The first pairs of a TSV file, or all of them, in a separate file."""
    path = path or domain_file("it", "train")
    if not path.exists():
        sys.exit(f"{path}: not there; set KNNMT_DATA or give --text FILE")
    return excerpt(path, count, scratch / "sample.tsv")


def excerpt(path: Path, count: int, into: Path) -> Path:
    with open_stream(path) as lines:
        into.write_bytes(b"".join(islice(lines, count or None)))
    return into


@dataclass
class Spent:
    """Seconds of a piece of work: by the clock, of all cores together, and of the main thread."""

    wall: float = 0.0
    cpu: float = 0.0
    thread: float = 0.0


@contextmanager
def spending() -> Iterator[Spent]:
    spent, wall, cpu, thread = Spent(), time.perf_counter(), _cpu_seconds(), time.thread_time()
    yield spent
    spent.thread = time.thread_time() - thread
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    spent.wall, spent.cpu = time.perf_counter() - wall, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def bare(engine: Engine[Any], parts: list[Slice], batch_tokens: int, scores: bool) -> None:
    """Encoder and decoder over the batches of a build, with or without scores."""
    for part in parts:
        longer = np.maximum(part.sources.lengths, part.targets.lengths)
        for batch in batches_by_length(longer, BatchingConfig(sentences=None, tokens=batch_tokens)):
            block = force(engine, part.sources.taken(batch), part.targets.taken(batch))
            if scores:
                score(engine, block.representations, block.targets)


def passes(engine: Engine[Any], parts: list[Slice], batch_tokens: int) -> None:
    """All work of the device in a build, including the transfer of keys to the host."""
    begun: deque[Callable[[], object]] = deque()
    for part in parts:
        begun.append(begin_passes(engine, part.sources, part.targets, "float16", batch_tokens, for_fast=False))
        if len(begun) > 2:
            begun.popleft()()
    while begun:
        begun.popleft()()


def write(engine: Engine[Any], part: Slice, batch_tokens: int, times: int, place: Path) -> Spent:
    """Write the arrays of one slice repeatedly, with as many threads as a build has."""
    from concurrent.futures import ThreadPoolExecutor

    arrays = encode_slice(engine, part, "float16", batch_tokens)
    place.mkdir()
    with spending() as spent, ThreadPoolExecutor(building._WRITERS) as writers:
        list(writers.map(lambda number: write_segment(place, f"{number}.safetensors", arrays), range(times)))
    return spent


def whole_build(
    store: Path, memory: Path, engine: Engine[Any], batch_tokens: int, processes: int
) -> tuple[int, Spent, timing.Timings]:
    """A build that replaces the existing store: its entries, and where its main thread's time went."""
    shutil.rmtree(store, ignore_errors=True)
    with (
        stage_times() as timings,
        mock.patch.object(building, "preparers", return_value=processes),
        spending() as spent,
    ):
        built = write_store(store, pairs_of(memory), engine, BuildConfig(batch_tokens=batch_tokens))
    return sum(segment.entries for segment in built.manifest.segments), spent, timings


def pairs_of(memory: Path) -> Iterator[SegmentPair]:
    return read_files([memory], ReadingConfig(), ReadingReport())


def stages(engine: Engine[Any], memory: Path, parts: list[Slice], batch_tokens: int, scratch: Path) -> None:
    """The speed of each stage alone, in entries per second; the slowest at the end."""
    entries = sum(part.entries for part in parts)

    def tell(name: str, spent: Spent, share: float = 1.0) -> None:
        speed = entries * share / max(spent.wall, 1e-9)
        cpu, thread = (1e6 * seconds / (entries * share) for seconds in (spent.cpu, spent.thread))
        print_row(name, f"{speed:,.0f}", f"{cpu:.2f}", f"{thread:.2f}")

    print_header("stage alone", "entries/s", "µs of CPU time an entry", "of the main thread")
    with spending() as spent:
        passes(engine, parts, batch_tokens)
    tell("all passes, keys brought to the host", spent)
    largest = max(parts, key=lambda part: part.entries)
    times = -(-entries // largest.entries)
    tell("writing", write(engine, largest, batch_tokens, times, scratch / "written"), times * largest.entries / entries)
    for name, scores in (("encoder and decoder", False), ("the same with scores", True)):
        with spending() as spent:
            bare(engine, parts, batch_tokens, scores)
        tell(name, spent)
    with spending() as spent:
        deque(pairs_of(memory), maxlen=0)
    tell("reading", spent)
    for processes in sorted({0, building.preparers(engine)}, reverse=True):
        with spending() as spent:
            cut = cut_slices(pairs_of(memory), engine.tokenizer, engine.max_positions, Counter(), "drop", processes)
            deque(cut, maxlen=0)
        tell(f"reading and preparing, {processes} processes beside", spent)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch-tokens", type=int, nargs="*", default=[])
    parser.add_argument("--processes", type=int, nargs="*", default=[])
    parser.add_argument("--device", choices=_WARMING, default="cpu")
    parser.add_argument("--finish", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    engine = load_engine(device=arguments.device)
    usual = pass_batching(engine).tokens or 0
    name = cpu_name() if arguments.device == "cpu" else torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        memory = sample(arguments.text, arguments.pairs, scratch)
        aside, store = building.preparers(engine), scratch / "store"
        cut = cut_slices(pairs_of(memory), engine.tokenizer, engine.max_positions, Counter(), processes=aside)
        parts = list(islice(cut, _SLICES))
        del cut  # this ends its processes
        entries = sum(part.entries for part in parts)
        units = sum(int((part.lines == 0).sum()) for part in parts)
        first = excerpt(memory, units, scratch / "first.tsv")
        few = excerpt(memory, _WARMING[arguments.device], scratch / "few.tsv")
        print(f"{name}, {engine.dtype}, {arguments.threads} threads, {arguments.rounds} rounds\n")
        print_header("batch tokens", "processes", "bare entries/s", "build entries/s", "build / bare", "in CPU time")
        for batch_tokens in arguments.batch_tokens or [usual]:
            for processes in arguments.processes or [aside]:
                warm = list(cut_slices(pairs_of(few), engine.tokenizer, engine.max_positions, Counter()))
                bare(engine, warm, batch_tokens, scores=True)
                whole_build(store, few, engine, batch_tokens, processes)
                alone, whole = [], []
                for _ in range(arguments.rounds):
                    with spending() as spent:
                        bare(engine, parts, batch_tokens, scores=True)
                    alone.append(spent)
                    built, spent, timings = whole_build(store, memory, engine, batch_tokens, processes)
                    whole.append(spent)
                sides = ((alone, entries), (whole, built))
                wall = [count / statistics.median(each.wall for each in side) for side, count in sides]
                cpu = [statistics.median(each.cpu for each in side) / count for side, count in sides]
                print(
                    f"| {batch_tokens} | {processes} | {wall[0]:,.0f} | {wall[1]:,.0f} "
                    f"| {wall[1] / wall[0]:.2f} | {cpu[0] / cpu[1]:.2f} |",
                    flush=True,
                )
        print(
            f"\nWhere the last build's time went ({built:,} entries), as its main thread saw it:\n{timings.table()}",
            flush=True,
        )
        stages(engine, first, parts, (arguments.batch_tokens or [usual])[-1], scratch)
        if arguments.finish:
            from knnmt.calibration.estimates import estimate_settings

            with spending() as spent:
                estimate_settings(Datastore.open(store), engine)
            print(f"\nestimating settings: {spent.wall:.2f} s, {spent.cpu:.2f} s of CPU time")


if __name__ == "__main__":
    main()
