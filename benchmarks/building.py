"""Building speed beside the bare forced pass: what everything around the model costs.

    python benchmarks/building.py [--text FILE.tsv] [--pairs 6000] [--rounds 5] [--batch-tokens 1024 ...]
        [--device cuda]

Both sides run the same batches in one process, taking turns. "bare" is encoder and decoder without output projection
and nothing else; "build" reads, tokenizes, cuts slices, runs the same passes, keeps the keys in float16, hashes and
writes a store. Default text: the software domain's training pairs under KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from knnmt import timing
from knnmt.config import BatchingConfig
from knnmt.corpus.opening import open_stream
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_memories
from knnmt.corpus.report import ReadingReport
from knnmt.datastore.building import BuildConfig, build
from knnmt.datastore.slices import Slice, cut_slices
from knnmt.engine.base import Engine
from knnmt.engine.batching import batches_by_length
from knnmt.engine.forced import pass_batching
from knnmt.engine.loading import load_engine
from knnmt.engine.precision import cpu_name


def sample(path: Path | None, count: int, scratch: Path) -> Path:
    """The first pairs of a TSV file, in a file of their own."""
    path = path or Path(os.environ.get("KNNMT_DATA", "../shared")) / "data" / "it" / "train.tsv.xz"
    if not path.exists():
        sys.exit(f"{path}: not there; set KNNMT_DATA or give --text FILE")
    with open_stream(path) as lines:
        (scratch / "sample.tsv").write_bytes(b"".join(islice(lines, count)))
    return scratch / "sample.tsv"


def bare_seconds(engine: Engine[Any], parts: list[Slice], batch_tokens: int) -> float:
    """Encoder and decoder over the batches that a build makes."""
    started = time.perf_counter()
    for part in parts:
        longer = [max(len(source), len(target)) for source, target in zip(part.sources, part.targets, strict=True)]
        for batch in batches_by_length(longer, BatchingConfig(sentences=None, tokens=batch_tokens)):
            sources, targets = [part.sources[i] for i in batch], [part.targets[i] for i in batch]
            longest = max(map(len, targets))
            tokens = torch.tensor(
                [[target + [0] * (longest - len(target))] for target in targets], device=engine.device
            )
            engine.step(engine.start(engine.encode(sources)), tokens)
    if engine.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def build_seconds(engine: Engine[Any], memory: Path, store: Path, batch_tokens: int) -> float:
    """A whole build, from the memory's file to a published store."""
    started = time.perf_counter()
    pairs = read_memories([memory], ReadingConfig(), ReadingReport())
    build(store, pairs, engine, BuildConfig(batch_tokens=batch_tokens))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", type=Path)
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch-tokens", type=int, nargs="*", default=[])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    engine = load_engine(device=arguments.device)
    usual = pass_batching(engine).tokens or 0
    name = cpu_name() if arguments.device == "cpu" else torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        memory = sample(arguments.text, arguments.pairs, scratch)
        pairs = list(read_memories([memory], ReadingConfig(), ReadingReport()))
        parts = list(cut_slices(pairs, engine.tokenizer, engine.max_positions, Counter()))
        entries = sum(part.entries for part in parts)
        print(f"{name}, {engine.dtype}, {arguments.threads} threads, {arguments.rounds} rounds, {entries:,} entries\n")
        print("| batch tokens | bare entries/s | build entries/s | build / bare |\n|---|---|---|---|")
        for batch_tokens in arguments.batch_tokens or [usual]:
            bare, built = [], []
            for turn in range(arguments.rounds + 1):
                seconds = bare_seconds(engine, parts, batch_tokens)
                with timing.record() as timings:
                    whole = build_seconds(engine, memory, scratch / f"{batch_tokens}-{turn}", batch_tokens)
                if turn:  # the first round warms up
                    bare.append(entries / seconds)
                    built.append(entries / whole)
            ratio = statistics.median(built) / statistics.median(bare)
            print(
                f"| {batch_tokens} | {statistics.median(bare):,.0f} | {statistics.median(built):,.0f} | {ratio:.2f} |"
            )
        print(f"\nWhere the last build's time went:\n{timings.table()}")


if __name__ == "__main__":
    main()
