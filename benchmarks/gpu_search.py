"""Search on a GPU, exact and clustered, beside the limits of its memory and its matrix products.

    python benchmarks/gpu_search.py [--entries 1e6 4e6 20e6] [--rows 5 80 320 1280] [--k 8] [--store STORE]

Keys and queries are synthetic, for speed only: 64 per cluster, which is harder than real ones. Clusters use as many
probes as are needed to find 0.95 of the nearest. With --store, a real store is searched as well, with settings that
reach the fidelity target on its own held-out entries.

Times are medians by CUDA events after warm-up, for single calls and for replays of a CUDA graph. GB/s and TFLOP/s are
the minimum that exact search needs (every key read once, one product in float16) divided by the time of the replay. The
limits are measured in the same run by a copy and a product of large matrices. --block-mib tries other block sizes of
exact search, --profile shows the kernels.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from knnmt.calibration.index_choice import settle
from knnmt.datastore.store import Datastore
from knnmt.index import resident
from knnmt.index.clusters import Clusters
from knnmt.index.entries import Entries
from knnmt.index.on_device import DeviceIndex
from knnmt.index.resident import LOADED, ResidentKeys
from knnmt_lab.scripts import argument_parser, print_header, print_row

_SECONDS = 0.4  # about the time of each measurement
_CLUSTER = 64  # keys
_RECALL = 0.95
_WITHIN, _BETWEEN = 10.0, 16.0  # norms, chosen so that distances are as in real stores


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--entries", type=float, nargs="*", default=[1e6, 4e6, 20e6])
    parser.add_argument("--rows", type=int, nargs="*", default=[5, 80, 320, 1280])
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--dim", type=int, default=320)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--block-mib", type=int, nargs="*", default=[])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    copied, multiplied = limits(device)
    print(f"{name}, PyTorch {torch.__version__}; measured limits: {copied:,.0f} GB/s, {multiplied:,.0f} TFLOP/s")
    print(f"synthetic keys of {arguments.dim} dimensions in float16, k {arguments.k}\n")
    print_header("entries", "rows", "search", "ms", "ms, graph", "GB/s", "of limit", "TFLOP/s", "of limit", "recall")
    notes: list[str] = []
    for entries in (int(each) for each in arguments.entries):
        chance = torch.Generator(device).manual_seed(0)
        centres = torch.randn((entries // _CLUSTER, arguments.dim), generator=chance, device=device)
        exact, clusters, built = made(entries, centres)
        choose_probes(clusters, synthetic(320, centres, seed=0), arguments.k)
        how = f"{clusters.tiles:,} tiles, {clusters.settings.in_words}"
        notes.append(f"{entries:,} entries: {how}, {built:.1f} s to build")
        for rows in arguments.rows:
            queries = synthetic(rows, centres, seed=rows)
            if arguments.block_mib:
                notes.append(f"{entries:,} entries, {rows} rows: {by_block(exact, queries, arguments)}")
            recalls = {"exact": 1.0, "clusters": found_of(clusters, queries, arguments.k)}
            for label, index in (("exact", exact), ("clusters", clusters)):
                stepped, replayed = timed(partial(index.search, queries, arguments.k), device)
                speed = 2 * entries * arguments.dim / 1e6 / replayed  # GB/s
                product = rows * speed / 1000  # TFLOP/s
                used = [f"{speed:,.0f}", f"{speed / copied:.0%}", f"{product:,.0f}", f"{product / multiplied:.0%}"]
                times = (f"{stepped:.3f}", f"{replayed:.3f}", *(used if index is exact else [""] * 4))
                print_row(f"{entries:,}", rows, label, *times, f"{recalls[label]:.3f}")
                if arguments.profile:
                    notes.append(f"{label}, {entries:,} entries, {rows} rows\n{kernels(index, queries, arguments.k)}")
        del exact, clusters, index
    print("\n" + "\n".join(notes))
    if arguments.store:
        real(Datastore.open(arguments.store), device, arguments.rows, arguments.k)


def by_block(exact: ResidentKeys, queries: Tensor, arguments: argparse.Namespace) -> str:
    """Exact search with other block sizes."""
    usual, times = resident.BLOCK_BYTES, []
    for mebibytes in arguments.block_mib:
        resident.BLOCK_BYTES = mebibytes << 20
        milliseconds = timed(partial(exact.search, queries, arguments.k), queries.device)[1]
        times.append(f"{milliseconds:.3f} ms with {mebibytes} MiB")
    resident.BLOCK_BYTES = usual
    return ", ".join(times)


def synthetic(count: int, centres: Tensor, seed: int) -> Tensor:
    """Vectors around centres, (count, dim) float32, with decreasing variance along the dimensions."""
    device, dim = centres.device, centres.shape[1]
    chance = torch.Generator(device).manual_seed(seed)
    which = torch.randint(len(centres), (count,), generator=chance, device=device)
    moved = torch.randn((count, dim), generator=chance, device=device)
    falling: Tensor = torch.arange(1, dim + 1, device=device) ** -0.35
    vectors: Tensor = (_BETWEEN * centres[which] + _WITHIN * moved) * (falling / falling.norm())
    return vectors


def made(entries: int, centres: Tensor) -> tuple[ResidentKeys, Clusters, float]:
    """Exact and clustered search over synthetic keys, and the seconds that clustering took."""
    device = centres.device

    def blocks() -> Iterator[Tensor]:
        for first in range(0, entries, LOADED):
            yield synthetic(min(LOADED, entries - first), centres, seed=1_000_000 + first).half()

    keys = ResidentKeys(blocks(), entries, centres.shape[1], torch.float16, device)
    started = time.perf_counter()
    clusters = Clusters(keys)
    wait(device)
    return keys, clusters, time.perf_counter() - started


def found_of(index: Clusters, queries: Tensor, k: int) -> float:
    """The part of the k nearest that a clustered search finds."""
    farthest_sq = index.keys.search(queries, k)[0][:, -1:]
    return float((index.search(queries, k)[0] <= farthest_sq * (1 + 1e-5)).float().mean())


def choose_probes(clusters: Clusters, queries: Tensor, k: int) -> None:
    """Choose the fewest that find enough, or eight times the usual number."""
    usual = clusters.settings
    for part in (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0):
        clusters.settings = usual.times(part)
        if found_of(clusters, queries, k) >= _RECALL:
            return


def real(store: Datastore, device: torch.device, rows: list[int], k: int) -> None:
    """A real store in clusters: with chosen settings, and timed with its own keys as queries."""
    entries = Entries(store)
    index = DeviceIndex(entries, device, clustered=True)
    started = time.perf_counter()
    measured = settle(index, entries)
    wait(device)
    seconds = time.perf_counter() - started
    print(f"\n{store.path.name}, real text: {entries.entries:,} entries, {seconds:.1f} s to load, cluster and settle")
    if measured is None:
        print("no settings tried hold the target; it is searched exactly")
        return
    print(f"{index.clusters.settings.in_words}: recall {measured.recall:.3f}, variation {measured.variation:.4f}\n")
    print_header("rows", "exact, ms in a graph", "clusters, ms in a graph")
    for count in rows:
        ids = torch.randint(entries.entries, (count,), generator=torch.Generator().manual_seed(0))
        queries = torch.from_numpy(entries.keys_of(ids.numpy())).to(device).float()
        exact = timed(partial(index.exactly().search, queries, k), device)[1]
        near = timed(partial(index.search, queries, k), device)[1]
        print_row(count, f"{exact:.3f}", f"{near:.3f}")


def kernels(index: ResidentKeys | Clusters, queries: Tensor, k: int) -> str:
    """Where the time of a search goes on the GPU."""
    with torch.profiler.profile() as profile:
        for _ in range(10):
            index.search(queries, k)
        wait(queries.device)
    return str(profile.key_averages().table(sort_by="self_device_time_total", row_limit=14, max_name_column_width=90))


def limits(device: torch.device) -> tuple[float, float]:
    """GB/s of a copy, counting both read and write, and TFLOP/s of a float16 product with sums in float32."""
    size, side = (1 << 30, 8192) if device.type == "cuda" else (1 << 24, 256)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * size / 1e9 / (timed(partial(target.copy_, source), device)[0] / 1000)
    matrix = torch.randn((side, side), device=device).half()
    multiplied = 2 * side**3 / 1e12 / (timed(partial(torch.mm, matrix, matrix.T), device)[0] / 1000)
    return copied, multiplied


def timed(step: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Median milliseconds of a step, called and replayed from a CUDA graph; on a CPU both are the same."""
    step()
    wait(device)
    if device.type != "cuda":
        called = median(step, device)
        return called, called
    called = median(step, device)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return called, median(graph.replay, device)


def median(step: Callable[[], object], device: torch.device) -> float:
    """Milliseconds, the median of as many rounds as fit into the time."""
    taken: list[float] = []
    started = time.perf_counter()
    while len(taken) < 5 or (time.perf_counter() - started < _SECONDS and len(taken) < 200):
        if device.type != "cuda":
            begun = time.perf_counter()
            step()
            taken.append(1000 * (time.perf_counter() - begun))
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        step()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
