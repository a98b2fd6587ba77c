"""Tasks of a cluster: function calls in processes that Ray starts, repeated if a process or machine dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from knnmt.distributed.cluster import Cluster, connected
from knnmt.engine.base import Engine
from knnmt.errors import ClusterError

RETRIES = 5  # for a task whose worker died, so that one that kills every worker is not tried for ever


class Tasks:
    """Calls of a function that all machines have, one worker for each."""

    def __init__(self, ray: Any, cluster: Cluster, gpus: float, function: Callable[..., Any]) -> None:
        self._ray, self._cluster, self._gpus = ray, cluster, gpus
        # max_calls keeps a process that has the model, which Ray does not do with GPUs by default
        options = {"num_cpus": cluster.threads, "num_gpus": gpus, "max_retries": RETRIES, "max_calls": 0}
        self._call = ray.remote(**options)(function)

    @property
    def room(self) -> int:
        """One more than can be processed, so that no worker waits for the driver; at most the requested number."""
        if self._cluster.workers is not None:
            return self._cluster.workers
        has = self._ray.cluster_resources()
        at_once = int(has.get("CPU", 0) // self._cluster.threads)
        if self._gpus:
            at_once = min(at_once, int(has.get("GPU", 0) // self._gpus))
        return max(1, at_once) + 1

    def submit(self, name: str, *given: object) -> Future[Any]:
        """Call the function. The future fails as the function does, or names the task whose workers all ended."""
        asked: Future[Any] = self._call.remote(*given).future()
        told: Future[Any] = Future()

        def tell(done: Future[Any]) -> None:
            if (error := done.exception()) is None:
                told.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayTaskError):  # the worker's own exception
                told.set_exception(error.cause)
            else:
                told.set_exception(
                    ClusterError(
                        f"{name}: its workers ended {RETRIES + 1} times ({str(error).splitlines()[0]}). Do they "
                        f"have enough memory? Finished work is kept; rerun the command to resume"
                    )
                )

        asked.add_done_callback(tell)
        return told


def run_tasks(
    cluster: Cluster, gpus: float, function: Callable[..., Any], calls: Mapping[str, tuple[object, ...]]
) -> Iterator[tuple[str, Any]]:
    """Call a function in workers of a cluster. Yields the name and the result of each call as it completes.

    Args:
        cluster: where Ray runs.
        gpus: GPUs for each worker.
        function: one that all machines can import.
        calls: the arguments of each call, by its name.
    """
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
    """GPUs for each worker: the requested number, or one if the driver's model is on a GPU."""
    given = cluster.gpus_per_worker
    return float(engine.device.type == "cuda") if given is None else given


def model_for_all(engine: Engine[Any]) -> str:
    """How any machine loads the driver's model: a directory at a path that all see, or a name."""
    return str(Path(engine.name).absolute()) if Path(engine.name).is_dir() else engine.name
