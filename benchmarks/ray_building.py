"""The cost of distributing a build: CPU time with and without Ray, seconds per task; and a simulation of many workers.

    python benchmarks/ray_building.py [--text FILE.tsv] [--pairs 4000] [--slice 8192] [--workers 2] [--rounds 3]

In each round, one process builds a store; then as many processes as there are workers build a part of it each, without
Ray and at the same time; then Ray workers on this machine build it. All have the model loaded. The CPU time of the
driver, the workers and Ray's own processes beyond that of one process is the cost of distribution. The processes
without Ray show how much of it is only that cores share caches and memory. Wall-clock times mean something if nothing
else runs. Slices are smaller than usual (65,536 entries), so that there are many; the cost of a task is then compared
with slices of the usual size.

Then the schedule is simulated for more workers than this machine has: the driver cuts slices one after the other and
hands them out, and each worker takes one at a time. All times in it were measured here, except the speed of a GPU.
"""

from __future__ import annotations

import heapq
import itertools
import os
import pickle
import statistics
import tempfile
import time
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from building import sample
from knnmt import Cluster
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.datastore import slices
from knnmt.datastore.building import BuildConfig, empty_manifest, write_store
from knnmt.datastore.manifest import SegmentRecord, StoredFile
from knnmt.datastore.prepared import Slice
from knnmt.datastore.slices import cut_slices
from knnmt.distributed import building
from knnmt.distributed.building import Job, RayWorkers, encode_on, encode_part
from knnmt.distributed.cluster import connected
from knnmt.engine.base import Engine
from knnmt.engine.loading import load_engine
from knnmt.engine.precision import cpu_name
from knnmt_lab.scripts import argument_parser, milliseconds

_USUAL = 1 << 16  # entries of a slice
_TASKS = 20
_WARMING, _FEW = 600, 512  # pairs, and entries of their slices, with which workers load the model
_TICKS = os.sysconf("SC_CLK_TCK")


def timed_part(job: Job, name: str, part: Slice) -> SegmentRecord:
    """Encode a worker's slice, and write its CPU time beside the store."""
    started = time.process_time()
    record = encode_part(job, name, part)
    (job.directory.parent.parent / f"{name}.seconds").write_text(str(time.process_time() - started), encoding="utf-8")
    return record


def empty_part(job: Job, name: str, part: Slice) -> SegmentRecord:  # noqa: ARG001
    """Do nothing with a slice."""
    return SegmentRecord(StoredFile(name, 0, "0" * 64), len(part), part.entries)


_loaded: list[Engine[Any]] = []


def load() -> None:
    """Load the model in a process without Ray."""
    torch.set_num_threads(1)
    _loaded.append(load_engine(device="cpu"))


def build_part(pairs: list[SegmentPair], place: Path, slice_entries: int) -> float:
    """Build a store in a process without Ray; returns its CPU time."""
    slices.SLICE_ENTRIES = slice_entries
    return build_part_here(pairs, place, _loaded[0])


def build_part_here(pairs: list[SegmentPair], place: Path, engine: Engine[Any]) -> float:
    started = time.process_time()
    write_store(place, pairs, engine)
    return time.process_time() - started


def children_seconds(workers: bool = False) -> float:
    """CPU time of Ray's own processes below this one, or of its workers."""
    parents: dict[int, tuple[int, float, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text(encoding="utf-8").rpartition(")")
            command = (stat.parent / "cmdline").read_text(encoding="utf-8")
        except OSError:
            continue
        fields = rest.split()
        parents[int(stat.parent.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS, command)
    total, below = 0.0, {os.getpid()}
    while found := {pid for pid, (parent, _, _) in parents.items() if parent in below and pid not in below}:
        total += sum(parents[pid][1] for pid in found if _is_worker(parents[pid][2]) is workers)
        below |= found
    return total


def _is_worker(command: str) -> bool | None:
    """Whether a process is a worker of Ray; None if it does not belong to Ray."""
    if "multiprocessing" in command:
        return None
    return command.startswith("ray::") and "Agent" not in command


def simulated(workers: int, count: int, work: float, driver: float, task: float) -> float:
    """Seconds that a build of this many slices takes.

    driver: time to cut and hand over each slice, one after the other; task: a worker's time besides its work
    """
    free = [0.0] * workers
    cut = end = 0.0
    for _ in range(count):
        cut += driver
        begins = max(cut, heapq.heappop(free))
        cut = max(cut, begins - driver)  # the driver is at most one slice ahead
        end = max(end, begins + task + work)
        heapq.heappush(free, begins + task + work)
    return end


def usual_slice(parts: list[Slice]) -> Slice:
    """A slice of the usual size, made by repeating smaller ones."""
    taken: list[Slice] = []
    for part in cycle(parts):
        taken.append(part)
        if sum(each.entries for each in taken) >= _USUAL:
            break
    return Slice.joined(taken)


def task_seconds(ray: Any, engine: Engine[Any], part: Slice, scratch: Path) -> tuple[float, float]:
    """The median time from handing over a slice to its result if the worker does nothing with it, and the mean CPU time
    of the driver in it.
    """
    building.encode_part = empty_part
    job = Job(scratch, "", empty_manifest(engine, BuildConfig()), engine.name, "cpu", None, 1)
    workers = RayWorkers(ray, Cluster(), 0, job)
    started, numbers = time.process_time(), itertools.count()
    taken = milliseconds(lambda: workers.submit(f"{next(numbers):05d}", part).result(), _TASKS)
    building.encode_part = encode_part
    return statistics.median(taken) / 1000, (time.process_time() - started) / _TASKS


@dataclass(frozen=True, slots=True)
class Round:
    """CPU seconds of one process, of several without Ray, and of Ray's workers, the driver and Ray's own processes."""

    plain: float
    without: float
    workers: float
    driver: float
    ray: float
    wall_without: float
    wall_ray: float

    @property
    def lost(self) -> float:
        """The part of the work of one process that is lost."""
        return (self.workers + self.driver + self.ray) / self.plain - 1

    def told(self) -> str:
        return (
            f"one process {self.plain:.2f} s of CPU time; without Ray {self.without:.2f} s ({self.wall_without:.1f} s "
            f"of wall-clock time); with Ray {self.workers:.2f} s in workers, {self.driver:.2f} s in the driver, "
            f"{self.ray:.2f} s in Ray ({self.wall_ray:.1f} s); lost {self.lost:.1%}, without Ray "
            f"{self.without / self.plain - 1:.1%}"
        )


def measured(
    number: int, scratch: Path, pairs: list[SegmentPair], engine: Engine[Any], cluster: Cluster, pool: Executor
) -> Round:
    count, place = cluster.workers or 1, scratch / str(number)
    place.mkdir()
    plain = build_part_here(pairs, place / "plain", engine)
    began = time.perf_counter()
    parts = [pairs[each * len(pairs) // count : (each + 1) * len(pairs) // count] for each in range(count)]
    size = slices.SLICE_ENTRIES
    done = [pool.submit(build_part, part, place / f"part-{each}", size) for each, part in enumerate(parts)]
    without, wall_without = sum(future.result() for future in done), time.perf_counter() - began
    began, before, around = time.perf_counter(), time.process_time(), children_seconds()
    write_store(place / "ray", pairs, engine, encode=encode_on(cluster))
    driver, around = time.process_time() - before, children_seconds() - around
    wall_ray = time.perf_counter() - began
    workers = sum(float(path.read_text(encoding="utf-8")) for path in place.glob("*.seconds"))
    for path in (place / "plain").rglob("*.safetensors"):
        if (place / "ray" / path.relative_to(place / "plain")).read_bytes() != path.read_bytes():
            raise SystemExit(f"{path.name} has other bytes with Ray")
    return Round(plain, without, workers, driver, around, wall_without, wall_ray)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--slice", type=int, default=8192)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    engine = load_engine(device="cpu")
    slices.SLICE_ENTRIES = given.slice
    with (
        tempfile.TemporaryDirectory() as temporary,
        ProcessPoolExecutor(given.workers, get_context("spawn"), load) as pool,
        connected(Cluster("local")) as ray,
    ):
        scratch = Path(temporary)
        memory = sample(given.text, given.pairs, scratch)
        pairs: list[SegmentPair] = list(read_files([memory], ReadingConfig(), ReadingReport()))
        started = time.process_time()
        parts = list(cut_slices(pairs, engine.tokenizer, engine.max_positions, Counter()))
        entries = sum(part.entries for part in parts)
        cutting = (time.process_time() - started) / entries
        size = statistics.mean(len(pickle.dumps(part)) for part in parts)
        print(f"{cpu_name()}: {len(pairs):,} pairs, {entries:,} entries, {len(parts)} slices of {size / 1e6:.2f} MB")
        cluster = Cluster("local", workers=given.workers)
        write_store(scratch / "warm", pairs[:200], engine)
        slices.SLICE_ENTRIES = _FEW  # so that every worker has some
        building.encode_part = timed_part
        warm = scratch / "warming"
        warm.mkdir()
        few = pairs[: min(len(pairs), _WARMING)]
        write_store(warm / "ray", few, engine, encode=encode_on(cluster))
        plain_few = build_part_here(few, warm / "plain", engine)
        starting = (children_seconds(workers=True) - plain_few) / given.workers
        slices.SLICE_ENTRIES = given.slice
        list(pool.map(build_part, [pairs[:50]] * 2, [scratch / f"warm-{each}" for each in range(2)], [given.slice] * 2))
        whole = usual_slice(parts)
        task, handing = task_seconds(ray, engine, whole, scratch)
        building.encode_part = timed_part  # which the empty task has replaced
        rounds = []
        for number in range(given.rounds):
            rounds.append(measured(number, scratch, pairs, engine, cluster, pool))
            print(f"round {number + 1}: {rounds[-1].told()}", flush=True)
    lost = statistics.median(each.lost for each in rounds)
    alone = statistics.median(each.without / each.plain - 1 for each in rounds)
    print(
        f"{given.workers} workers, slices of {given.slice:,} entries, medians: lost {lost:.1%}, without Ray {alone:.1%}"
    )
    plain = statistics.median(each.plain for each in rounds)
    size, work = len(pickle.dumps(whole)) / 1e6, plain / entries * whole.entries
    cut = cutting * whole.entries
    print(f"a slice of {whole.entries:,} entries, {size:.1f} MB: {work:.1f} s of work")
    print(f"  the driver cuts it in {cut:.2f} s and hands it over in {handing * 1e3:.0f} ms of CPU time")
    print(f"  a worker's start, with the imports and the model, takes {starting:.1f} s of CPU time, once")
    print(f"  from there to the result, without work, it takes {task * 1e3:.0f} ms")
    print("simulated for 1,000 such slices, the part of the workers' time that is lost:")
    kinds = ((f"cores, {work:.1f} s a slice", work), ("GPUs, 600,000 entries a second", whole.entries / 6e5))
    for name, seconds in kinds:
        for count in (2, 8, 64):
            took = simulated(count, 1000, seconds, cut + handing, task)
            print(f"  {count:3} {name:<32} {1 - 1000 * seconds / count / took:6.1%}")


if __name__ == "__main__":
    main()
