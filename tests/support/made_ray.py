"""A stand-in for the module `ray`: tasks are done at once, by this process, as often as it is told that workers die."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any


class RayTaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class WorkerCrashedError(Exception):
    pass


class MadeRay:
    """dying: how many workers die before one does a task; Ray tries as often as it was told"""

    exceptions = SimpleNamespace(RayTaskError=RayTaskError)

    def __init__(self, dying: int = 0, **resources: float) -> None:
        self.dying, self._resources = dying, resources or {"CPU": 2.0}
        self.options: dict[str, Any] = {}
        self.tried = self.at_once = 0

    def put(self, content: object) -> object:
        return content

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return self._resources

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options = options
        return lambda function: SimpleNamespace(remote=lambda *given: self._reference(function, given))

    def _reference(self, function: Callable[..., Any], given: tuple[object, ...]) -> Any:
        done: Future[Any] = Future()
        for _ in range(self.options["max_retries"] + 1):
            self.tried += 1
            if self.dying:
                self.dying -= 1
                continue
            try:
                done.set_result(function(*given))
            except Exception as error:
                done.set_exception(RayTaskError(error))
            break
        else:
            done.set_exception(WorkerCrashedError("the worker died\nunexpectedly"))
        return SimpleNamespace(future=lambda: done)
