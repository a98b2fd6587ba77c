"""Building on a cluster: slices are tasks, the files of their segments are the results, and publication is the last
step.

The driver cuts the text into slices and gives each to a worker. The worker writes the segment's file where all machines
see it: in the store's directory, or in storage behind a URL, from which the driver fetches it. A file is named by its
text, and gets its name when it is complete. If a worker dies, its slice is done again. If the driver dies, nothing is
lost, because the next one finds the finished files. The files are the same as without a cluster, if the workers compute
as this machine does.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from knnmt.datastore.arrays import Array
from knnmt.datastore.building import (
    PLAN,
    EncodeParts,
    EntryProgress,
    finish_segment,
    finished_segment,
    mark_finished,
)
from knnmt.datastore.manifest import Manifest, SegmentRecord, StoredFile
from knnmt.datastore.prepared import Slice
from knnmt.datastore.slices import encode_slice, write_segment
from knnmt.datastore.storage import Storage
from knnmt.distributed.cluster import Cluster, connected
from knnmt.distributed.tasks import Tasks, gpus_for, model_for_all
from knnmt.engine.base import Engine, State
from knnmt.errors import StorageError
from knnmt.regular_files import read_regular


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs besides a slice.

    directory: for segments, as all machines see it
    plan: SHA-256 of the plan file beside it
    storage: used instead of the directory, below a directory named after the plan
    manifest: of the future store
    model, device: for a worker to load the model
    """

    directory: Path
    plan: str
    manifest: Manifest
    model: str
    device: str
    batch_tokens: int | None
    threads: int
    storage: str | None = None

    def in_storage(self, name: str = "") -> str:
        """The name of a segment in storage. Another plan makes other bytes from the same text."""
        return f"{self.plan[:32]}/{name}"


class Workers(Protocol):
    """Workers that encode slices. room: how many slices they can have at a time; it may change"""

    @property
    def room(self) -> int: ...

    def submit(self, name: str, part: Slice) -> Future[SegmentRecord]:
        """Encode a slice and write its segment under this name. The future fails as `encode_part` does."""


# In a worker ----------------------------------------------------------------------------------------------------------


def encode_part(job: Job, name: str, part: Slice) -> SegmentRecord:
    """Encode a slice and write its segment, completely or not at all."""
    if job.storage is not None:
        return _encode_into_storage(job, name, part)
    _require_shared(job)
    return finish_segment(job.directory, name, _arrays(job, part))


def _encode_into_storage(job: Job, name: str, part: Slice) -> SegmentRecord:
    storage, remote = Storage(job.storage or ""), job.in_storage(name)
    if (there := storage.put_before(remote)) is not None:  # an earlier driver died before it fetched it
        sha256, size = there
        return SegmentRecord(StoredFile(name, size, sha256), len(part), part.entries)
    with TemporaryDirectory() as scratch:
        record = write_segment(Path(scratch), name, _arrays(job, part))
        storage.put(Path(scratch) / name, remote)
    return record


def _require_shared(job: Job) -> None:
    plan = job.directory.parent / PLAN
    try:
        shared = hashlib.sha256(read_regular(plan)).hexdigest() == job.plan
    except OSError:
        shared = False
    if not shared:
        raise StorageError(
            f"{plan}: {socket.gethostname()} does not see this file, which the build wrote. Put the store on a "
            f"file system that all machines share, or name storage that they all reach (--storage URL)."
        )


def _arrays(job: Job, part: Slice) -> dict[str, Array]:
    manifest = job.manifest
    engine = _engine(job.model, job.device, manifest.compute_dtype, *_languages(manifest), job.threads)
    manifest.require_engine(job.directory.parent, engine)
    return encode_slice(engine, part, manifest.key_dtype, job.batch_tokens, manifest.for_fast)


def _languages(manifest: Manifest) -> tuple[str, str]:
    return manifest.source_language, manifest.target_language


@lru_cache(maxsize=1)
def _engine(model: str, device: str, dtype: str, source: str, target: str, threads: int) -> Engine[Any]:
    """The model, loaded once in each process."""
    import torch

    from knnmt.engine.loading import load_engine

    torch.set_num_threads(threads)
    return load_engine(model, device, dtype, source, target)


# In the driver --------------------------------------------------------------------------------------------------------


def encode_on(cluster: Cluster) -> EncodeParts:
    """The encoder of `knnmt.datastore.building.write_store` for a build on a cluster."""

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
            gpus = gpus_for(cluster, engine)
            model, device = model_for_all(engine), "cuda" if gpus else "cpu"
            job = Job(
                directory.absolute(), plan, manifest, model, device, batch_tokens, cluster.threads, cluster.storage
            )
            collect = partial(_fetch, job, Storage(job.storage)) if job.storage else _require_here
            found = encode_with(RayWorkers(ray, cluster, gpus, job), parts, directory, manifest, progress, collect)
        if job.storage:
            Storage(job.storage).remove_all(job.in_storage())
        return found

    return encode


def encode_with(
    workers: Workers,
    parts: Iterable[Slice],
    directory: Path,
    manifest: Manifest,
    progress: EntryProgress,
    collect: Callable[[Path, SegmentRecord], None],
) -> tuple[list[SegmentRecord], int]:
    """Like `knnmt.datastore.building.encode_parts`, but by workers. Progress is reported in the order of completion.

    collect: makes sure that the result of a worker is in the directory
    """
    records: dict[int, SegmentRecord] = {}
    waiting: dict[Future[SegmentRecord], tuple[int, Slice]] = {}
    reused = pairs = entries = 0

    def settle(number: int, part: Slice, record: SegmentRecord) -> None:
        nonlocal pairs, entries
        records[number] = record
        pairs, entries = pairs + len(part), entries + part.entries
        progress(pairs, entries)

    def settle_first() -> None:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            number, part = waiting.pop(future)
            record = future.result()
            collect(directory / record.stored.file, record)
            settle(number, part, record)

    for number, part in enumerate(parts, manifest.next_segment):
        name = f"{number:05d}-{part.digest()}.safetensors"
        if (record := finished_segment(directory, name, len(part), part.entries)) is not None:
            reused += 1
            settle(number, part, record)
            continue
        while waiting and len(waiting) >= workers.room:
            settle_first()
        waiting[workers.submit(name, part)] = (number, part)
    while waiting:
        settle_first()
    return [records[number] for number in sorted(records)], reused


def _fetch(job: Job, storage: Storage, path: Path, record: SegmentRecord) -> None:
    """Fetch a segment from storage, as if this machine had made it."""
    storage.fetch(job.in_storage(record.stored.file), path, record.stored)
    mark_finished(path, record)


def _require_here(path: Path, record: SegmentRecord) -> None:
    """Raise an error for a segment that a worker wrote where this machine does not see it."""
    found = path.stat().st_size if path.exists() else None
    if found != record.stored.bytes:
        raise StorageError(
            f"{path}: a worker wrote {record.stored.bytes:,} bytes to this file, but this machine sees "
            f"{found or 'none'}. "
            "Put the store on a file system that all machines share, and run the same command again."
        )


class RayWorkers:
    """Workers of a cluster, as tasks."""

    def __init__(self, ray: Any, cluster: Cluster, gpus: float, job: Job) -> None:
        self._tasks = Tasks(ray, cluster, gpus, encode_part)
        self._job = ray.put(job)

    @property
    def room(self) -> int:
        """As in `Tasks`."""
        return self._tasks.room

    def submit(self, name: str, part: Slice) -> Future[SegmentRecord]:
        """As in `Workers`."""
        return self._tasks.submit(name, self._job, name, part)
