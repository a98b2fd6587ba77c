"""`Cluster`: the address of Ray, and the resources of one worker."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from knnmt.config import check
from knnmt.datastore.storage import is_url
from knnmt.errors import ClusterError, MissingDependencyError

LOCAL, AUTO = "local", "auto"
_LOCAL_BYTES = 1 << 28  # the largest that Ray keeps of the data passed between processes of one machine


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that Ray runs on.

    address: "local" starts Ray on this machine for the duration of the work; "auto" uses the cluster that this machine
        belongs to; host:port and ray://host:port name another cluster, the latter through its client port
    workers: slices that are processed at the same time, at most; None for as many as fit
    threads: CPU cores of each worker
    gpus_per_worker: GPUs of each, 0.5 for one that two share; None for one if the model is on a GPU here, otherwise
        none
    storage: a URL such as s3://bucket/place, through which the workers of a build return their results if the machines
        share no file system
    """

    address: str = LOCAL
    workers: int | None = None
    threads: int = 1
    gpus_per_worker: float | None = None
    storage: str | None = None

    def __post_init__(self) -> None:
        check(
            bool(self.address) and not self.address.startswith("-"),
            f"the address of a cluster must be 'local', 'auto', host:port or ray://host:port, got {self.address!r}",
        )
        check(self.workers is None or self.workers >= 1, f"workers must be at least 1, got {self.workers}")
        check(self.threads >= 1, f"threads must be at least 1, got {self.threads}")
        gpus = self.gpus_per_worker
        check(gpus is None or 0 <= gpus < math.inf, f"gpus_per_worker must be a number of at least 0, got {gpus}")
        sound = self.storage is None or is_url(self.storage)
        check(sound, f"storage must be a URL such as s3://bucket/place, got {self.storage!r}")


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """The module `ray`, connected to a cluster. An existing connection is used, and stays as it is."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    connect(cluster)
    try:
        yield ray
    finally:
        ray.shutdown()


def connect(cluster: Cluster) -> Any:
    """The module `ray`, connected to a cluster until the process ends, unless it is already connected."""
    ray = _ray()
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a Ray that we start sends no usage statistics
    local = {"include_dashboard": False, "object_store_memory": _LOCAL_BYTES} if cluster.address == LOCAL else {}
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray raises exceptions of any kind, and bare ones
        if cluster.address == LOCAL:
            raise ClusterError(
                f"Ray did not start on this machine ({error}). It gives up after half a minute if other programs keep "
                f"the machine busy: rerun the command, or do without --ray"
            ) from error
        raise ClusterError(
            f"{cluster.address}: cannot reach a Ray cluster at this address ({error}). `ray status` shows whether "
            f"it runs; 'local' starts one on this machine"
        ) from error
    return ray


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("ray", "work on a cluster", "ray") from error
    return ray
