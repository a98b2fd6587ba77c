"""The process of a measured system, seen from outside: it is started, gets requests over a pipe, and always ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from knnmt import System, TranslationSettings
from knnmt.errors import SystemStoppedError

_MAX_SHOWN = 2_000  # characters of a process's last output


@dataclass(frozen=True, slots=True)
class Answer:
    """The translations of some texts, and their cost.

    tokens: of the best hypotheses, including ends of sentences
    searches: rows, searches, and both of them at first steps; all 0 without a memory
    """

    texts: list[str]
    tokens: int
    seconds: float
    stage_seconds: dict[str, float]
    searches: Sequence[int]
    resident_mib: int | None

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


class Answering(Protocol):
    """An object that translates on request."""

    def ask(self, texts: Sequence[str], batch_size: int) -> Answer: ...


class SystemProcess:
    """A process that runs `worker.serve`. Use it in a `with` block, which ends the process.

    command: starts it
    threads: CPU threads of PyTorch and of FAISS, which reads the number from the environment
    """

    def __init__(self, name: str, command: Sequence[str], threads: int) -> None:
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        self._process = subprocess.Popen(  # noqa: S603 -- the command is ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        self._requests, self._answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)

    def __enter__(self) -> SystemProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        try:
            self._process.communicate()  # closes the pipes
        finally:
            self._said.close()

    def about(self) -> dict[str, Any]:
        """Its description of itself when it is ready. Call it once, first."""
        return self._read()

    def ask(self, texts: Sequence[str], batch_size: int) -> Answer:
        """Let it translate, and wait."""
        try:
            self._requests.write(json.dumps({"texts": list(texts), "batch_size": batch_size}) + "\n")
            self._requests.flush()
        except OSError:  # a broken pipe, which Windows calls an invalid argument
            raise self._stopped() from None
        return Answer(**self._read())

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise self._stopped()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _stopped(self) -> SystemStoppedError:
        status = self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode("utf-8", "replace").strip()[-_MAX_SHOWN:]
        how = f"ended with status {status}"
        if status < 0:
            memory = "; was there enough memory for all systems at once?" if status == -signal.SIGKILL else ""
            how = f"was ended by {signal.Signals(-status).name}{memory}"
        return SystemStoppedError(f"system {self.name!r} stopped, its process {how}: {said or 'it printed nothing'}")


def start(system: System, settings: TranslationSettings, *, threads: int, **options: Any) -> SystemProcess:
    """The process of a system of this package; `options` are those of `Translator`.

    settings: those of the system take precedence
    """
    description = {
        "datastore": None if system.datastore is None else str(system.datastore),
        "exact": system.exact,
        "settings": {**settings.given(), **system.settings.given()},
        "threads": threads,
        **options,
    }
    # -P: do not import modules from the current directory
    command = [sys.executable, "-P", "-m", "knnmt_lab.bench.worker", json.dumps(description)]
    return SystemProcess(system.name, command, threads)
