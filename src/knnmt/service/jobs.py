"""`Jobs` turn memories into domains, or add them to domains, in the background.

A job builds its store in its own process (`memory_work.py`). A new domain is served as soon as it is built, and tuned
afterwards. To an existing domain, the segments are added one at a time, so that corrections do not wait for the
computation. After a kill and a restart the job resumes: the build from its finished parts, the rest where it stopped.
`job_records.py` has what is on disk.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from threading import Condition, Thread
from typing import Any, Literal

from knnmt import output_files
from knnmt.corpus.languages import plain_name
from knnmt.datastore.publication import storage_errors
from knnmt.datastore.store import Datastore
from knnmt.errors import KnnmtError
from knnmt.records import parse_json
from knnmt.service.config import Limits
from knnmt.service.data_directory import private
from knnmt.service.domains import Domains
from knnmt.service.job_records import Job, JobRecords, State
from knnmt.service.memory_work import MemoryWork
from knnmt.service.problems import Problem, problem_of
from knnmt.service.writing import Writers
from knnmt.translator.translator import Translator

_log = logging.getLogger("knnmt.service")
_ENDING = re.compile(r"\.[a-z0-9]{1,10}")
_KEPT = 100  # finished jobs
_MAX_ATTEMPTS = 10  # interrupted by a kill of the service
_MAX_LINES = 50  # of a job's messages
_MAX_LINE_CHARACTERS = 2_000
start_process = subprocess.Popen


class Incoming:
    """A memory that is being received. If it does not become a job, nothing of it stays."""

    def __init__(self, jobs: Jobs, place: Path, file: str, make: Callable[..., Job]) -> None:
        self._jobs, self._place, self._make, self._made = jobs, place, make, False
        try:
            with storage_errors(place):
                place.mkdir(mode=0o700)
                self._out = open(place / file, "xb", opener=private)  # noqa: SIM115 - closed by `close`
        except BaseException:
            jobs._has_come()
            raise

    def write(self, content: bytes) -> None:
        """Write some of it."""
        with storage_errors(self._place):
            self._out.write(content)

    def begin(self, **asked: Any) -> Job:
        """Start a job, now that the memory is complete."""
        with storage_errors(self._place):
            self._out.flush()
            output_files.sync(self._out.fileno())
        job = self._make(**asked)
        self._made = True
        return job

    def close(self) -> None:
        """Delete it, unless it became a job."""
        self._out.close()
        if not self._made:
            shutil.rmtree(self._place, ignore_errors=True)
        self._jobs._has_come()


class _CancelledError(Exception):
    """A job was cancelled."""


class Jobs:
    """The jobs of a service. Threads may share it. data: its directory; without it there are no jobs"""

    def __init__(
        self, data: Path | None, limits: Limits, translator: Translator, domains: Domains, writers: Writers
    ) -> None:
        self._limits, self._translator, self._domains, self._writers = limits, translator, domains, writers
        self._disk = None if data is None else JobRecords(data)
        self._changed = Condition()
        self._jobs: dict[str, Job] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._unwanted: set[str] = set()
        self._coming = 0  # memories that are being received
        self._closed = False
        if self._disk is not None:
            self._resume(self._disk)
        count = 0 if self._disk is None else limits.jobs
        self._threads = [Thread(target=self._work, name="knnmt-job", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Job]:
        known = list(self._jobs.values())  # in one step, whatever changes meanwhile
        return iter(sorted(known, key=lambda job: job.created))

    def of(self, number: str, sees: Callable[[str], bool] = lambda _domain: True) -> Job:
        """A job by its id. sees: whether somebody may know of a domain"""
        found = self._jobs.get(number)
        if found is None or not sees(found.domain):
            raise Problem(404, "unknown_job", f"there is no job {number[:40]!r}; GET /v1/jobs lists them")
        return found

    def receive(self, name: str) -> Incoming:
        """Receive a memory; the caller must close it.

        name: the sender's name; only a plain ending of it becomes part of a file name here
        """
        if self._disk is None:
            raise Problem(
                409,
                "no_data_directory",
                ("the service was started without a data directory, so it cannot accept memories"),
            )
        with self._changed:
            waiting = self._coming + sum(job.state == "waiting" for job in self._jobs.values())
            if self._closed or waiting >= self._limits.waiting_jobs:
                raise Problem(429, "too_many_jobs", f"{waiting} memories are already waiting; send this one later", 60)
            self._coming += 1
        ending = plain_name(PurePath(name)).suffix.lower()
        file = f"memory{ending if _ENDING.fullmatch(ending) else ''}"
        number = secrets.token_hex(8)
        return Incoming(self, self._disk.directory(number), file, partial(self._begin, id=number, name=name, file=file))

    def _begin(self, **asked: Any) -> Job:
        job = Job(created=time.time(), **asked)
        with self._changed:
            self._records.save(job)
            self._jobs[job.id] = job
            self._changed.notify_all()
        return job

    def _has_come(self) -> None:
        with self._changed:
            self._coming -= 1

    def cancel(self, number: str) -> Job:
        """Cancel a job. What it has already put into a domain stays."""
        with self._changed:
            job = self.of(number)
            if job.is_over:
                return job
            if job.stage != "building":
                raise Problem(
                    409, "too_late", "the job is already adding its memory to the domain and cannot be cancelled"
                )
            self._unwanted.add(number)
            if job.state == "waiting":
                return self._end(job, "cancelled")
            if process := self._processes.get(number):
                process.kill()
        return job

    def close(self) -> None:
        """End. Unfinished jobs resume when the service is started again."""
        with self._changed:
            self._closed = True
            for process in self._processes.values():
                process.kill()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # States -----------------------------------------------------------------------------------------------------------

    @property
    def _records(self) -> JobRecords:
        assert self._disk is not None  # noqa: S101 - there are no jobs without it
        return self._disk

    def _resume(self, records: JobRecords) -> None:
        """Take up the jobs from before a restart; unfinished ones wait again."""
        for job in records.read():
            self._jobs[job.id] = job
            if job.is_over:
                records.clear(job)
            elif job.state == "running":
                self._update(job, state="waiting")
        self._forget_some()

    def _update(self, job: Job, **changes: Any) -> Job:
        with self._changed:
            job = replace(self._jobs[job.id], **changes)
            self._jobs[job.id] = job
            self._records.save(job)
            return job

    def _end(self, job: Job, state: State, message: str | None = None) -> Job:
        """Record that a job is over, delete its files, and only then report it."""
        with self._changed:
            job = replace(self._jobs[job.id], state=state, message=message, ended=time.time())
            self._records.save(job)
        self._records.clear(job)
        with self._changed:
            self._jobs[job.id] = job
            self._unwanted.discard(job.id)
            self._forget_some()
            self._changed.notify_all()
        return job

    def _forget_some(self) -> None:
        over = sorted((job for job in self._jobs.values() if job.is_over), key=lambda job: job.ended or 0)
        for job in over[:-_KEPT]:
            del self._jobs[job.id]
            self._records.delete(job)

    # Working ----------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._do(job)
            except _CancelledError:
                if not self._closed:
                    self._end(job, "cancelled")
            except Problem as problem:
                self._end(job, "failed", problem.message)
            except KnnmtError as error:
                self._end(job, "failed", self._domains.named_in(problem_of(error).message))
            except Exception:
                _log.exception("the job %s failed", job.id)
                self._end(job, "failed", "the service failed; its log says why")

    def _next(self) -> Job | None:
        """The job that has waited longest and whose domain no other job uses."""
        with self._changed:
            while not self._closed:
                busy = {job.domain for job in self._jobs.values() if job.state == "running"}
                waiting = [job for job in self._jobs.values() if job.state == "waiting" and job.domain not in busy]
                if waiting:
                    job = min(waiting, key=lambda each: each.created)
                    return self._update(job, state="running", attempts=job.attempts + 1)
                self._changed.wait()
            return None

    def _do(self, job: Job) -> None:
        if job.attempts > _MAX_ATTEMPTS:
            raise Problem(
                500, "given_up", f"the service ended {_MAX_ATTEMPTS} times during this job, so it is not tried again"
            )
        if job.stage == "building":
            first = job.attempts == 1  # later, the domain may be what this job has made
            adding = any(each.name == job.domain for each in self._domains) if first else job.adding
            job = self._update(job, adding=adding, summary=())  # an attempt that was interrupted is not reported
        if not job.adding:
            self._run(job, "build")
            self._end(job, "done")
            return
        if job.stage == "building":
            if not self._run(job, "build"):
                self._end(job, "done")
                return
            job = self._update(job, stage="publishing")
        if job.stage == "publishing":
            self._add_segments(job)
            job = self._update(job, stage="indexing")
        self._run(job, "index")
        self._translator.refresh_store(self._domains.of(job.domain).required_store())
        self._end(job, "done")

    def _serve(self, job: Job) -> None:
        """Serve a new domain, unless that was done before the service was killed."""
        if all(each.name != job.domain for each in self._domains):
            self._domains.take_in(job.domain)
        self._update(job, stage="tuning")

    def _add_segments(self, job: Job) -> None:
        """Add the segments that the domain does not have yet.

        None of their pairs was in the domain when they were built.
        """
        made = Datastore.open(self._records.store(job), guarded=True)
        path = self._domains.of(job.domain).required_store()
        writer = self._writers.of(path)
        for place, segment in enumerate(made.segments):
            with made.reading():
                _, pair = next(segment.units())
            with self._translator.for_store(path).memories.using(path) as memory:
                held = pair in memory.opened.sources.pairs_of(pair.source)
            if not held:
                writer.do(lambda store, place=place: store.take_over(made, place)).result()  # type: ignore[misc]

    def _run(self, job: Job, kind: Literal["build", "index"]) -> bool:
        """Run a process for some work of a job. Return whether it made a store."""
        process = start_process(
            [sys.executable, "-P", "-m", "knnmt.service.memory_work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the service; in its own session the process's priority would not count
        )
        with self._changed:
            self._processes[job.id] = process
            if self._closed or job.id in self._unwanted:
                process.kill()
        made = ended = False
        try:
            with process:
                assert process.stdin is not None  # noqa: S101 - asked for
                assert process.stdout is not None  # noqa: S101
                process.stdin.write(self._work_of(job, kind).line())
                process.stdin.flush()
                for line in process.stdout:
                    told = parse_json(line)
                    if "error" in told:
                        raise Problem(422, "failed", self._in_words(job, told["error"]))
                    ended = ended or "ended" in told
                    made = made or told.get("made", False)
                    if "built" in told:
                        self._serve(job)
                    self._hear(job, told)
                process.stdin.close()
        except BrokenPipeError:  # it ended at once
            pass
        finally:
            process.kill()
            with self._changed:
                del self._processes[job.id]
        if self._closed or job.id in self._unwanted:
            raise _CancelledError
        if not ended:
            raise Problem(500, "ended", _how_it_ended(process.returncode))
        return made

    def _hear(self, job: Job, told: dict[str, Any]) -> None:
        lines = [*told.get("read", ()), *([told["warning"]] if "warning" in told else [])]
        lines = [self._in_words(job, line) for line in lines]
        summary = (*self._jobs[job.id].summary, *lines)[:_MAX_LINES]
        known = self._jobs[job.id]
        self._update(job, done=told.get("done", known.done), of=told.get("of", known.of), summary=summary)

    def _in_words(self, job: Job, message: str) -> str:
        """A message for clients, with the sender's names of files."""
        records, place = self._records, str(self._domains.place(job.domain))
        for path, name in (
            (records.memory(job), job.name),
            (records.store(job), "it"),
            (records.work(job) / "store", job.domain),
            (place, job.domain),
        ):
            message = message.replace(str(path), name)
        return self._domains.named_in(message)[:_MAX_LINE_CHARACTERS]

    def _work_of(self, job: Job, kind: Literal["build", "index"]) -> MemoryWork:
        engine = self._translator.engine
        dtype = "float32" if engine.computes_in == "int8" else engine.computes_in  # keys are not computed in int8
        model: str | None = None if self._translator.chooses_model else engine.name
        source, target = job.source_language, job.target_language
        if model is not None:
            source, target = source or engine.languages.source or "de", target or engine.languages.target or "en"
        store = None
        if job.adding:
            store = self._domains.of(job.domain).required_store()
            manifest = Datastore.open(store).manifest
            model, dtype = self._translator.for_store(store).engine.name, manifest.compute_dtype
            source, target = manifest.source_language, manifest.target_language
        return MemoryWork(
            kind=kind,
            file=str(self._records.memory(job)),
            name=job.name,
            store=str(self._records.store(job) if job.adding else self._domains.place(job.domain)),
            domain=None if store is None else str(store),
            model=model,
            device=str(engine.device),
            dtype=dtype,
            source_language=source,
            target_language=target,
            format=job.format,
            skip_malformed=job.skip_malformed,
            unfinished=job.unfinished,
            pairs=self._limits.memory_pairs,
            unpacked_bytes=self._limits.unpacked_bytes,
        )


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"signal {-status} ended the process of the job; perhaps memory was short"
    return f"the process of the job ended with status {status}; the service's log says why"
