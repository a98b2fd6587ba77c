"""Building on a cluster: slices are tasks, their segments' files the results, and publication is one step at the end.

The driver cuts the text into slices and hands each to a worker, which writes the segment's file where all machines see
it. A file is named by its text and whole when it has its name. So a worker that dies costs its slice, which is done
again; a driver that dies costs nothing, for the next one finds what is done. The files are those of a build without a
cluster, if the workers compute as this machine does.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from knnmt.datastore.building import PLAN, EncodeParts, EntryProgress, finish_segment, finished_segment
from knnmt.datastore.manifest import Manifest, SegmentRecord
from knnmt.datastore.slices import Slice, encode_slice
from knnmt.distributed.cluster import Cluster, connected
from knnmt.engine.base import Engine, State
from knnmt.errors import ClusterError, StorageError
from knnmt.regular_files import read_regular

_RETRIES = 5  # of a slice whose worker died: text that ends every worker must not be tried for ever


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker has to know besides a slice.

    directory: where segments go, as all machines see it; plan: SHA-256 of the plan that lies beside it
    manifest: what the store will be; model, device: by which a worker loads the model
    """

    directory: Path
    plan: str
    manifest: Manifest
    model: str
    device: str
    batch_tokens: int | None
    threads: int


class Workers(Protocol):
    """Those that encode slices. room: how many slices they can have at a time, which may change"""

    @property
    def room(self) -> int: ...

    def submit(self, name: str, part: Slice) -> Future[SegmentRecord]:
        """Have a slice encoded and its segment written under this name; the future fails as `encode_part` does."""


# In a worker ----------------------------------------------------------------------------------------------------------


def encode_part(job: Job, name: str, part: Slice) -> SegmentRecord:
    """Encode a slice and write its segment, whole or not at all."""
    plan = job.directory.parent / PLAN
    try:
        shared = hashlib.sha256(read_regular(plan)).hexdigest() == job.plan
    except OSError:
        shared = False
    if not shared:
        raise StorageError(
            f"{plan}: expected what the build has written there, and {socket.gethostname()} does not see it. Give the "
            "store a place on a file system that all machines share."
        )
    manifest = job.manifest
    engine = _engine(job.model, job.device, manifest.compute_dtype, *_languages(manifest), job.threads)
    manifest.require_engine(job.directory.parent, engine)
    arrays = encode_slice(engine, part, manifest.key_dtype, job.batch_tokens, manifest.for_fast)
    return finish_segment(job.directory, name, arrays)


def _languages(manifest: Manifest) -> tuple[str, str]:
    return manifest.source_language, manifest.target_language


@lru_cache(maxsize=1)
def _engine(model: str, device: str, dtype: str, source: str, target: str, threads: int) -> Engine[Any]:
    """The model, loaded once a process."""
    import torch

    from knnmt.engine.loading import load_engine

    torch.set_num_threads(threads)
    return load_engine(model, device, dtype, source, target)


# In the driver --------------------------------------------------------------------------------------------------------


def encode_on(cluster: Cluster) -> EncodeParts:
    """What `knnmt.datastore.building.build` encodes with, for a build on a cluster."""

    def encode(
        engine: Engine[State],
        parts: Iterable[Slice],
        directory: Path,
        manifest: Manifest,
        batch_tokens: int | None,
        progress: EntryProgress,
    ) -> tuple[list[SegmentRecord], int]:
        plan = hashlib.sha256(read_regular(directory.parent / PLAN)).hexdigest()
        with connected(cluster) as ray:
            gpus = cluster.gpus_per_worker
            gpus = float(engine.device.type == "cuda") if gpus is None else gpus
            model = str(Path(engine.name).absolute()) if Path(engine.name).is_dir() else engine.name
            device = "cuda" if gpus else "cpu"
            job = Job(directory.absolute(), plan, manifest, model, device, batch_tokens, cluster.threads)
            return encode_with(RayWorkers(ray, cluster, gpus, job), parts, directory, manifest, progress)

    return encode


def encode_with(
    workers: Workers, parts: Iterable[Slice], directory: Path, manifest: Manifest, progress: EntryProgress
) -> tuple[list[SegmentRecord], int]:
    """As `knnmt.datastore.building.encode_parts`, by workers. What is done is told in the order in which it is done."""
    records: dict[int, SegmentRecord] = {}
    waiting: dict[Future[SegmentRecord], tuple[int, Slice]] = {}
    reused = pairs = entries = 0

    def settle(number: int, part: Slice, record: SegmentRecord) -> None:
        nonlocal pairs, entries
        records[number] = record
        pairs, entries = pairs + len(part.pairs), entries + part.entries
        progress(pairs, entries)

    def settle_first() -> None:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            number, part = waiting.pop(future)
            record = future.result()
            _require_here(directory / record.stored.file, record)
            settle(number, part, record)

    for number, part in enumerate(parts, manifest.next_segment):
        name = f"{number:05d}-{part.digest()}.safetensors"
        if (record := finished_segment(directory, name, len(part.pairs), part.entries)) is not None:
            reused += 1
            settle(number, part, record)
            continue
        while waiting and len(waiting) >= workers.room:
            settle_first()
        waiting[workers.submit(name, part)] = (number, part)
    while waiting:
        settle_first()
    return [records[number] for number in sorted(records)], reused


def _require_here(path: Path, record: SegmentRecord) -> None:
    """Refuse a segment that a worker wrote where this machine does not see it."""
    found = path.stat().st_size if path.exists() else None
    if found != record.stored.bytes:
        raise StorageError(
            f"{path}: a worker wrote {record.stored.bytes:,} bytes there, and this machine sees {found or 'none'}. "
            "Give the store a place on a file system that all machines share, and run the same command again."
        )


class RayWorkers:
    """Workers of a cluster: Ray starts their processes, and does a slice again whose process or machine died."""

    def __init__(self, ray: Any, cluster: Cluster, gpus: float, job: Job) -> None:
        self._ray, self._cluster, self._gpus = ray, cluster, gpus
        # max_calls: a process that has the model is kept, which Ray does not do with GPUs unless told
        options = {"num_cpus": cluster.threads, "num_gpus": gpus, "max_retries": _RETRIES, "max_calls": 0}
        self._encode = ray.remote(**options)(encode_part)
        self._job = ray.put(job)

    @property
    def room(self) -> int:
        """One more than can be worked on, so that none waits for the driver; as many as were asked for, at most."""
        if self._cluster.workers is not None:
            return self._cluster.workers
        has = self._ray.cluster_resources()
        at_once = int(has.get("CPU", 0) // self._cluster.threads)
        if self._gpus:
            at_once = min(at_once, int(has.get("GPU", 0) // self._gpus))
        return max(1, at_once) + 1

    def submit(self, name: str, part: Slice) -> Future[SegmentRecord]:
        """As in `Workers`."""
        asked: Future[SegmentRecord] = self._encode.remote(self._job, name, part).future()
        told: Future[SegmentRecord] = Future()

        def tell(done: Future[SegmentRecord]) -> None:
            if (error := done.exception()) is None:
                told.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayTaskError):  # what the worker itself raised
                told.set_exception(error.cause)
            else:
                told.set_exception(
                    ClusterError(
                        f"{name}: its workers ended, {_RETRIES + 1} times in all ({str(error).splitlines()[0]}). Have "
                        "they too little memory? What is done stays; the same command goes on"
                    )
                )

        asked.add_done_callback(tell)
        return told
