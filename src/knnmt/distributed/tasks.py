"""Tasks of a cluster: calls of a function in processes that Ray starts, and again where a process or machine died."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from knnmt.distributed.cluster import Cluster, connected
from knnmt.engine.base import Engine
from knnmt.errors import ClusterError

RETRIES = 5  # of a task whose worker died: one that ends every worker must not be tried for ever


class Tasks:
    """Calls of a function that all machines have, each by one worker."""

    def __init__(self, ray: Any, cluster: Cluster, gpus: float, function: Callable[..., Any]) -> None:
        self._ray, self._cluster, self._gpus = ray, cluster, gpus
        # max_calls: a process that has the model is kept, which Ray does not do with GPUs unless told
        options = {"num_cpus": cluster.threads, "num_gpus": gpus, "max_retries": RETRIES, "max_calls": 0}
        self._call = ray.remote(**options)(function)

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

    def submit(self, name: str, *given: object) -> Future[Any]:
        """Have the function called; the future fails as the function does, or says of which task all workers ended."""
        asked: Future[Any] = self._call.remote(*given).future()
        told: Future[Any] = Future()

        def tell(done: Future[Any]) -> None:
            if (error := done.exception()) is None:
                told.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayTaskError):  # what the worker itself raised
                told.set_exception(error.cause)
            else:
                told.set_exception(
                    ClusterError(
                        f"{name}: its workers ended, {RETRIES + 1} times in all ({str(error).splitlines()[0]}). Have "
                        "they too little memory? What is done stays; the same command goes on"
                    )
                )

        asked.add_done_callback(tell)
        return told


def done_by(
    cluster: Cluster, gpus: float, function: Callable[..., Any], calls: Mapping[str, tuple[object, ...]]
) -> Iterator[tuple[str, Any]]:
    """Each call's name and what it gave, as they are done."""
    if not calls:
        return
    with connected(cluster) as ray:
        tasks, waiting, left = Tasks(ray, cluster, gpus, function), dict[Future[Any], str](), iter(calls.items())
        for name, given in left:
            while len(waiting) >= tasks.room:
                yield from _done(waiting)
            waiting[tasks.submit(name, *given)] = name
        while waiting:
            yield from _done(waiting)


def _done(waiting: dict[Future[Any], str]) -> Iterator[tuple[str, Any]]:
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        yield waiting.pop(future), future.result()


def gpus_for(cluster: Cluster, engine: Engine[Any]) -> float:
    """Of each worker: those asked for, or one where the driver's model is on a GPU."""
    given = cluster.gpus_per_worker
    return float(engine.device.type == "cuda") if given is None else given


def model_for_all(engine: Engine[Any]) -> str:
    """What any machine loads the driver's model by: a directory under the path that all see, or a name."""
    return str(Path(engine.name).absolute()) if Path(engine.name).is_dir() else engine.name
