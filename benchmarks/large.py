"""Stores larger than memory: the time, memory and bytes of each operation.

    python benchmarks/large.py [--entries 1000000 5000000 20000000] [--dim 80] [--pairs 4500] [--place .bench/large]

A store is built from `--pairs` real pairs, then enlarged by the store's own writer: the same segments repeatedly, with
keys moved a little, other source tokens and other hashes. If `--dim` differs from the shipped model's, the model is the
shipped one cut down to this dimension: its translations are useless, but it does the same work. Every step runs in its
own process and reports seconds, CPU seconds, memory that no file backs (RssAnon) at the end, and the largest resident
memory, which includes pages of the store that the system may drop. Default text: the pairs of the software domain under
KNNMT_DATA (default ../shared). Stores are removed after their steps, unless `--keep` is given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import new_store, publish_new_store, write_store
from knnmt.datastore.manifest import SEGMENTS, SegmentRecord
from knnmt.datastore.postings import posting_arrays
from knnmt.datastore.slices import write_segment
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt_lab.scripts import argument_parser, print_row, read_domain

SHIPPED = MODELS_DIRECTORY / "de-en"
SEGMENTS_CHOSEN = 64


def memory_mib(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) >> 10


def text(part: str, count: int) -> list[SegmentPair]:
    return read_domain("it", part)[:count]


def cut_down(dim: int, place: Path) -> Path:
    """The shipped model with this many dimensions."""
    if place.exists():
        return place
    shutil.copytree(SHIPPED, place)
    config = json.loads((place / "config.json").read_text())
    whole = config["d_model"]
    (place / "config.json").write_text(json.dumps({**config, "d_model": dim}))
    weights = load_file(place / "model.safetensors")
    cut = {
        name: np.ascontiguousarray(array[tuple(slice(dim if size == whole else size) for size in array.shape)])
        for name, array in weights.items()
    }
    save_file(cut, place / "model.safetensors", {"format": "pt"})
    return place


def enlarged(real: Datastore, place: Path, entries: int) -> None:
    """Make a store of this many entries from a smaller one."""
    chance = np.random.default_rng(0)
    size = float(np.abs(real.segments[0].arrays["keys"][:1000].astype(np.float32)).mean())
    noise = chance.normal(0, 0.2 * size, (1 << 17, real.manifest.dim)).astype(np.float16)
    with new_store(place, "making") as making:
        records: list[SegmentRecord] = []
        have = 0
        while have < entries:
            segment = real.segments[len(records) % len(real.segments)]
            arrays = dict(segment.arrays)
            if len(records) >= len(real.segments):
                shift = int(chance.integers(len(noise) - len(arrays["keys"])))
                arrays["keys"] = arrays["keys"] + noise[shift : shift + len(arrays["keys"])]
                tokens = arrays["source_tokens"].copy()
                others = chance.random(len(tokens)) < 1 / 3
                tokens[others] = tokens[chance.integers(0, len(tokens), int(others.sum()))]
                arrays |= {"source_tokens": tokens, **posting_arrays(tokens, arrays["source_offsets"])}
                arrays["source_hashes"] = chance.integers(-(1 << 62), 1 << 62, len(arrays["source_hashes"]))
            records.append(write_segment(making / SEGMENTS, f"{len(records):05}-made.safetensors", arrays))
            have += records[-1].entries
        publish_new_store(making, place, replace(real.manifest, segments=tuple(records), next_segment=len(records)))


# Steps, each in a process of its own ----------------------------------------------------------------------------------

Told = dict[str, float]


@contextmanager
def timed(told: Told, name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    told[name], told[f"{name} (CPU)"] = time.perf_counter() - wall, time.process_time() - cpu


def model_alone(_store: Path, model: str, told: Told) -> None:
    """The model without a store."""
    from knnmt.translator.translator import Translator

    translator = Translator(model=model, device="cpu", dtype="float32", settings="raw")
    lines = [pair.source for pair in text("dev", 64)]
    with timed(told, "translate 64"):
        translator.translate(lines, beam=1, max_tokens=40, batch_size=16)


def translate(store: Path, model: str, told: Told) -> None:
    from knnmt.retrieval.open_store import OpenStore
    from knnmt.translator.translator import Translator

    with timed(told, "open"):
        opened = Datastore.open(store)
    translator = Translator(model=model, device="cpu", dtype="float32", settings="raw")
    with timed(told, "ready to search"):
        ready = OpenStore(opened)
    told["anonymous then"] = memory_mib("RssAnon")
    lines = [pair.source for pair in text("dev", 64)]
    with timed(told, "first choice"):
        ready.snapshot.choose_segments(translator.engine.tokenizer.encode_sources(lines[:1]), SEGMENTS_CHOSEN)
    told["anonymous with sources"] = memory_mib("RssAnon")
    del ready, opened
    settings: dict[str, Any] = {"k": 8, "interpolation_weight": 0.5, "temperature": 10.0}
    with timed(told, "first translation"):
        translator.translate(lines[:1], datastore=store, segments=SEGMENTS_CHOSEN, beam=1, max_tokens=40, **settings)
    with timed(told, "translate 64"):
        translator.translate(
            lines, datastore=store, segments=SEGMENTS_CHOSEN, beam=1, max_tokens=40, batch_size=16, **settings
        )


def change(store: Path, model: str, told: Told) -> None:
    """Single additions and removals, each seen by a reader that has the store open."""
    from knnmt.engine.loading import load_engine
    from knnmt.retrieval.open_store import OpenStore

    engine = load_engine(model, device="cpu", dtype="float32")
    reader = OpenStore(Datastore.open(store))
    asked = engine.tokenizer.encode_sources(["Das ist ein Satz."])
    reader.snapshot.choose_segments(asked, SEGMENTS_CHOSEN)
    told["anonymous before"] = memory_mib("RssAnon")
    writer = Datastore.open(store)
    known = writer.segments[0].pair(17).source

    def each(name: str, work: Callable[[int], object], times: int = 3) -> None:
        spent: dict[str, list[float]] = {}
        for number in range(times):
            one: Told = {}
            with timed(one, name):
                work(number)
            with timed(one, f"{name}: seen"):
                reader.refresh()
                reader.snapshot.choose_segments(asked, SEGMENTS_CHOSEN)
            for key, seconds in one.items():
                spent.setdefault(key, []).append(seconds)
        told.update({key: statistics.median(mine) for key, mine in spent.items()})

    each("add a pair", lambda n: writer.add([SegmentPair(f"Das ist Satz {n}.", f"Line {n}.", f"own#{n}")], engine), 5)
    each("remove by source", lambda n: writer.remove(matching(source_text=known if n else "Das ist Satz 1.")), 2)
    each("remove by origin", lambda _: writer.remove(matching(origin="own#2")), 1)
    told["anonymous then"] = memory_mib("RssAnon")


def verify(store: Path, _model: str, told: Told) -> None:
    opened = Datastore.open(store)
    with timed(told, "verify"):
        told["problems"] = len(list(opened.verify()))


def compact(store: Path, _model: str, told: Told) -> None:
    opened = Datastore.open(store)
    with timed(told, "compact"):
        opened.compact()


STEPS = {"model alone": model_alone, "translate": translate, "change": change, "verify": verify, "compact": compact}


def step(name: str, store: Path, model: str) -> None:
    told: Told = {}
    STEPS[name](store, model, told)
    told["anonymous MiB"], told["largest MiB"] = memory_mib("RssAnon"), memory_mib("VmHWM")
    print(json.dumps(told))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000_000, 5_000_000, 20_000_000])
    parser.add_argument("--dim", type=int, default=80)
    parser.add_argument("--pairs", type=int, default=4500)
    parser.add_argument("--place", type=Path, default=Path(".bench/large"))
    parser.add_argument("--steps", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step(arguments.step[0], Path(arguments.step[1]), arguments.step[2])
        return
    arguments.place.mkdir(parents=True, exist_ok=True)
    model = SHIPPED if arguments.dim == 320 else cut_down(arguments.dim, arguments.place / f"model-{arguments.dim}")
    real = arguments.place / f"real-{arguments.dim}-{arguments.pairs}"
    if not real.exists():
        from knnmt.engine.loading import load_engine

        write_store(real, text("train", arguments.pairs), load_engine(str(model), device="cpu", dtype="float32"))
    for entries in arguments.entries:
        store = arguments.place / f"{arguments.dim}-{entries}"
        if not store.exists():
            told: Told = {}
            with timed(told, "made"):
                enlarged(Datastore.open(real), store, entries)
            size = sum(stored.bytes for stored in Datastore.open(store).manifest.files())
            told["GB"] = size / 1e9
            tell(entries, arguments.dim, "made", told)
        for name in arguments.steps:
            command = [sys.executable, "-W", "ignore", __file__, "--step", name, str(store), str(model)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            tell(entries, arguments.dim, name, json.loads(done.stdout))
        if not arguments.keep:
            shutil.rmtree(store)


def tell(entries: int, dim: int, name: str, told: Told) -> None:
    for key, value in told.items():
        print_row(f"{entries:,} of {dim}", name, key, f"{value:,.3f}")


if __name__ == "__main__":
    main()
