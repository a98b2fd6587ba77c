"""`Jobs` turn memories into domains, or add them to domains, in the background.

A job builds its store in its own process (`memory_work.py`). A new domain is served as soon as it is built, and tuned
afterwards. To an existing domain, the segments are added one at a time, so that corrections do not wait for the
computation. After a kill and a restart the job resumes: the build from its finished parts, the rest where it stopped.
`job_records.py` has what is on disk.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePath
from threading import Event, Lock
from typing import Any

from knnmt import output_files
from knnmt.corpus.languages import plain_name
from knnmt.datastore.publication import storage_errors
from knnmt.datastore.store import Datastore
from knnmt.records import parse_json
from knnmt.service.background import Background
from knnmt.service.child_process import start
from knnmt.service.config import Limits
from knnmt.service.data_directory import private
from knnmt.service.domains import Domains
from knnmt.service.job_records import Job, JobRecords
from knnmt.service.memory_work import MemoryWork
from knnmt.service.problems import Problem
from knnmt.service.writing import Writers
from knnmt.translator.translator import Translator

_ENDING = re.compile(r"\.[a-z0-9]{1,10}")
_KEPT = 100  # finished jobs
_MAX_ATTEMPTS = 10  # interrupted by a kill of the service
_MAX_LINES = 50  # of a job's messages
_MAX_LINE_CHARACTERS = 2_000


class Incoming:
    """A memory that is being received. If it does not become a job, nothing of it stays."""

    def __init__(self, jobs: Jobs, place: Path, file: str, make: Callable[..., Job]) -> None:
        self._jobs, self._place, self._make, self._made = jobs, place, make, False
        try:
            with storage_errors(place):
                place.mkdir(mode=0o700)
                self._out = open(place / file, "xb", opener=private)  # noqa: SIM115 - closed by `close`
        except BaseException:
            jobs._end_receiving()
            raise

    def write(self, content: bytes) -> None:
        """Write some of it."""
        with storage_errors(self._place):
            self._out.write(content)

    def begin(self, **options: Any) -> Job:
        """Start a job, now that the memory is complete."""
        with storage_errors(self._place):
            self._out.flush()
            output_files.sync(self._out.fileno())
        job = self._make(**options)
        self._made = True
        return job

    def close(self) -> None:
        """Delete it, unless it became a job."""
        self._out.close()
        if not self._made:
            shutil.rmtree(self._place, ignore_errors=True)
        self._jobs._end_receiving()


class Jobs:
    """The jobs of a service. Threads may share it. data: its directory; without it there are no jobs"""

    def __init__(
        self, data: Path | None, limits: Limits, translator: Translator, domains: Domains, writers: Writers
    ) -> None:
        self._limits, self._translator, self._domains, self._writers = limits, translator, domains, writers
        self._disk = None if data is None else JobRecords(data)
        self._changing = Lock()
        self._receiving = 0  # memories that are being received
        self._work = Background[Job](
            limits.jobs,
            "job",
            self._do,
            lambda _job, message: domains.named_in(message),
            save=lambda job: self._records.save(job),
            clear=self._clear,
            place=lambda job: job.domain,
        )
        if self._disk is not None:
            self._work.resume(self._disk.read())

    def __iter__(self) -> Iterator[Job]:
        return iter(self._work)

    def of(self, number: str, sees: Callable[[str], bool] = lambda _domain: True) -> Job:
        """A job by its id. sees: whether somebody may know of a domain"""
        found = self._work.get(number)
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
        with self._changing:
            waiting = self._receiving + sum(job.state == "waiting" for job in self)
            if self._work.is_closed or waiting >= self._limits.waiting_jobs:
                raise Problem(429, "too_many_jobs", f"{waiting} memories are already waiting; send this one later", 60)
            self._receiving += 1
        ending = plain_name(PurePath(name)).suffix.lower()
        file = f"memory{ending if _ENDING.fullmatch(ending) else ''}"
        number = secrets.token_hex(8)
        return Incoming(self, self._disk.directory(number), file, partial(self._begin, id=number, name=name, file=file))

    def _begin(self, **options: Any) -> Job:
        job = Job(**options)
        self._work.add(job)
        return job

    def _end_receiving(self) -> None:
        with self._changing:
            self._receiving -= 1

    def cancel(self, number: str) -> Job:
        """Cancel a job. What it has already put into a domain stays."""

        def require_building(job: Job) -> None:
            if job.stage != "building":
                raise Problem(
                    409, "too_late", "the job is already adding its memory to the domain and cannot be cancelled"
                )

        return self._work.cancel(self.of(number), require_building)

    def close(self) -> None:
        """End. Unfinished jobs resume when the service is started again."""
        self._work.close()

    @property
    def _records(self) -> JobRecords:
        assert self._disk is not None  # noqa: S101 - there are no jobs without it
        return self._disk

    def _clear(self, job: Job) -> None:
        """Delete the files of a job that is over, and the oldest jobs that are over."""
        self._records.clear(job)
        over = sorted((each for each in self if each.is_over), key=lambda each: each.ended or 0)
        for each in over[:-_KEPT]:
            self._work.forget(each)
            self._records.delete(each)

    # Working ----------------------------------------------------------------------------------------------------------

    def _do(self, job: Job) -> None:
        job = self._work.update(job, attempts=job.attempts + 1)
        if job.attempts > _MAX_ATTEMPTS:
            raise Problem(
                500, "given_up", f"the service ended {_MAX_ATTEMPTS} times during this job, so it is not tried again"
            )
        if job.stage == "building":
            first = job.attempts == 1  # later, the domain may be what this job has made
            adding = any(each.name == job.domain for each in self._domains) if first else job.adding
            job = self._work.update(job, adding=adding, summary=())  # an interrupted attempt is not reported
        if not job.adding:
            self._build(job)
            return
        if job.stage == "building":
            if not self._build(job):
                return
            job = self._work.update(job, stage="publishing")
        if job.stage == "publishing":
            self._add_segments(job)
            job = self._work.update(job, stage="indexing")
        self._renew_index(job)

    def _serve(self, job: Job) -> None:
        """Serve a new domain, unless that was done before the service was killed."""
        if all(each.name != job.domain for each in self._domains):
            self._domains.take_in(job.domain)
        self._work.update(job, stage="tuning")

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

    def _renew_index(self, job: Job) -> None:
        renewal = self._writers.of(self._domains.of(job.domain).required_store()).renew_index()
        if renewal is not None:
            over = Event()
            renewal.add_done_callback(lambda _: over.set())
            with self._work.stopped_by(job, over.set):
                over.wait()

    def _build(self, job: Job) -> bool:
        """Build the store of a job in a process of its own. Return whether there is anything in it."""
        process = start("knnmt.service.memory_work", output=subprocess.PIPE)
        made = ended = False
        try:
            with self._work.stopped_by(job, process.kill), process:
                assert process.stdin is not None  # noqa: S101 - asked for
                assert process.stdout is not None  # noqa: S101
                process.stdin.write(self._work_of(job).line())
                process.stdin.flush()
                for line in process.stdout:
                    report = parse_json(line)
                    if "error" in report:
                        raise Problem(422, "failed", self._in_words(job, report["error"]))
                    ended = ended or "ended" in report
                    made = made or report.get("made", False)
                    if "built" in report:
                        self._serve(job)
                    self._record(job, report)
                process.stdin.close()
        except BrokenPipeError:  # it ended at once
            pass
        finally:
            process.kill()
        if not ended:
            raise Problem(500, "ended", _how_it_ended(process.returncode))
        return made

    def _record(self, job: Job, report: dict[str, Any]) -> None:
        lines = [*report.get("read", ()), *([report["warning"]] if "warning" in report else [])]
        lines = [self._in_words(job, line) for line in lines]
        known = self.of(job.id)
        summary = (*known.summary, *lines)[:_MAX_LINES]
        self._work.update(job, done=report.get("done", known.done), of=report.get("of", known.of), summary=summary)

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

    def _work_of(self, job: Job) -> MemoryWork:
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
