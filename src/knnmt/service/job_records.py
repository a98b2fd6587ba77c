"""`JobRecords`: the jobs of a service on disk, from which they resume after a kill.

DATA/jobs/ID/
  job.json         the request and the progress; written when the memory is complete
  memory.*         the memory as it was sent, under our own name; only the process of the job reads it
  store            the store that is built from it, to be added to a domain
  work             the work of `adapt` on the store of a new domain
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from knnmt.config import check
from knnmt.datastore.publication import storage_errors
from knnmt.service.background import WorkRecord
from knnmt.service.config import require_name
from knnmt.service.data_directory import read_record, write_record

_RECORD = "job.json"
_ID = re.compile(r"[0-9a-f]{16}")
_MAX_RECORD_BYTES = 1 << 20
Stage = Literal["building", "tuning", "publishing", "indexing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(WorkRecord):
    """A job, as in its record.

    file: our name of the memory
    source_language, target_language: of the memory, if the sender names them
    adding: to a domain that existed when the job started
    stage: while it is tuned, a new domain is served
    summary: what became of the memory's units, in lines
    """

    domain: str
    file: str
    format: str | None
    source_language: str | None = None
    target_language: str | None = None
    skip_malformed: bool
    unfinished: bool
    stage: Stage = "building"
    adding: bool = False
    attempts: int = 0
    summary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_name(self.domain)
        check(_ID.fullmatch(self.id) is not None, "an id must have 16 hexadecimal digits")
        check(re.fullmatch(r"memory(\.[a-z0-9]{1,10})?", self.file) is not None, "the file must be named memory")


class JobRecords:
    """The directories of jobs. data: the directory of the service"""

    def __init__(self, data: Path) -> None:
        self._place = data.resolve() / "jobs"
        with storage_errors(self._place):
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)

    def directory(self, number: str) -> Path:
        """The directory of a job, by its id."""
        return self._place / number

    def memory(self, job: Job) -> Path:
        """The memory of a job."""
        return self.directory(job.id) / job.file

    def store(self, job: Job) -> Path:
        """The store that a job builds."""
        return self.directory(job.id) / "store"

    def work(self, job: Job) -> Path:
        """Where a job builds the store of a new domain."""
        return work_beside(self.memory(job))

    def read(self) -> Iterator[Job]:
        """The jobs from before a restart. Whatever was only partly received is deleted."""
        for found in self._place.iterdir():
            if not _ID.fullmatch(found.name) or found.is_symlink():
                continue
            if not (found / _RECORD).exists():  # it was being received
                shutil.rmtree(found, ignore_errors=True)
                continue
            if (job := read_record(found / _RECORD, Job, _MAX_RECORD_BYTES, found.name)) is not None:
                yield job

    def save(self, job: Job) -> None:
        """Write the record of a job, in one step."""
        write_record(self.directory(job.id) / _RECORD, job)

    def clear(self, job: Job) -> None:
        """Delete all files of a job except its record."""
        for left in self.directory(job.id).iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            elif left.name != _RECORD:
                left.unlink(missing_ok=True)

    def delete(self, job: Job) -> None:
        """Delete all files of a job."""
        shutil.rmtree(self.directory(job.id), ignore_errors=True)


def work_beside(memory: Path) -> Path:
    """Where the job of a memory builds the store of a new domain."""
    return memory.with_name("work")
