"""Memories that become domains: jobs that go on, fail in words, and leave nothing behind."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.corpus.writing import write_tmx
from knnmt.datastore.store import Datastore
from knnmt.datastore.unfinished import is_unfinished
from knnmt.service import child_process
from knnmt.service.config import Limits
from knnmt.service.domains import Domain, Domains
from knnmt.service.http.answer_shapes import JobAnswer, JobsAnswer
from knnmt.service.job_records import Job, JobRecords
from support import warm
from support.datastore_pairs import some_pairs
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
TABLE = "".join(f"Satz {number} hier\tsentence {number} here\n" for number in range(6))


@pytest.fixture(autouse=True)
def _quick_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "start_process", warm.Popen)


def sent(client: TestClient, domain: str, content: str | bytes, **asked: Any) -> str:
    answer = client.post(f"/v1/domains/{domain}/memories", params=asked, content=content)
    assert answer.status_code == 202, answer.text
    told = JobAnswer.model_validate(answer.json())
    assert answer.headers["location"] == f"/v1/jobs/{told.id}"
    return told.id


def ended(client: TestClient, number: str) -> JobAnswer:
    while True:
        told = JobAnswer.model_validate(client.get(f"/v1/jobs/{number}").json())
        if told.state not in ("waiting", "running"):
            return told
        time.sleep(0.02)


def translated(client: TestClient, domain: str, text: str) -> str:
    answer = client.post("/v1/translate", json={"texts": [text], "domain": domain})
    found: str = answer.json()["translations"][0]["text"]
    return found


def idle(command: list[str], **options: Any) -> warm.Popen:
    """A process that reads what it shall do and does nothing stands for one that takes its time."""
    return warm.Popen([command[0], "-c", "import sys; sys.stdin.read()"], **options)


def left_by(data: Path) -> set[str]:
    return {path.name for path in (data / "jobs").rglob("*") if path.is_file()}


def test_a_memory_becomes_a_domain_and_grows(start_service: StartService, served_store: Path, tmp_path: Path) -> None:
    client = start_service(stores={"small": served_store})
    made = ended(client, sent(client, "own", TABLE, name="Übung #1.tsv"))
    assert (made.state, made.adding, made.done, made.of) == ("done", False, 6, 6), made
    assert "read       6 pairs from 1 file" in made.summary
    assert translated(client, "own", "Satz 3 hier") == "sentence 3 here"
    origins = [pair.origin for pair in Datastore.open(tmp_path / "data/domains/own").pairs()]
    assert origins == [f"Übung %231.tsv#{number}" for number in range(1, 7)]
    # What is there already is not added again, and the rest is.
    more = TABLE + "Ganz neu\tquite new\n"
    added = ended(client, sent(client, "own", gzip.compress(more.encode()), name="Übung #1.tsv"))
    assert (added.state, added.adding) == ("done", True), added
    assert "left out   6  already in the domain" in added.summary
    assert translated(client, "own", "Ganz neu") == "quite new"
    again = ended(client, sent(client, "own", more, name="Übung #1.tsv"))
    assert again.state == "done"
    opened = Datastore.open(tmp_path / "data/domains/own", verify=True)
    assert (opened.manifest.live_sentences, opened.manifest.generation) == (7, 2)
    assert left_by(tmp_path / "data") == {"job.json"}
    known = JobsAnswer.model_validate(client.get("/v1/jobs").json())
    assert [(job.domain, job.state) for job in known.jobs] == [("own", "done")] * 3
    assert str(tmp_path) not in client.get("/v1/jobs").text


def test_what_is_added_to_a_store_is_what_add_would_add(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    client = start_service(stores={"small": served_store})
    before = Datastore.open(served_store)
    pairs = [replace(pair, origin=f"x{number}") for number, pair in enumerate(some_pairs(30, start=40))]
    write_tmx(tmp_path / "m.tmx", pairs, "de", "en")
    job = ended(client, sent(client, "small", (tmp_path / "m.tmx").read_bytes(), name="m.tmx"))
    assert (job.state, job.adding) == ("done", True), job
    after = Datastore.open(served_store, verify=True)
    assert after.manifest.live_sentences == before.manifest.live_sentences + 30
    texts = [(pair.source, pair.target) for pair in after.pairs()]
    assert texts == [(pair.source, pair.target) for pair in [*some_pairs(20), *pairs]]


@pytest.mark.parametrize(
    ("content", "asked", "words"),
    [
        (b"<tmx version='1.4'><body><tu", {"name": "a.tmx"}, "a.tmx"),
        (b"one line\n", {"name": "a.txt"}, "a.txt: is a text file without a partner"),
        (b"\x00\x01\x02" * 100, {}, "memory: "),
        (b"a\tb\n" * 3, {"name": "a.tsv"}, "at most 2"),
        (b"x" * 500 + b"\t" + b"y" * 500 + b"\n", {"name": "a.tsv"}, "no usable pair was read"),
        (
            gzip.compress(b"a\tb\n" * 3000, mtime=0),
            {"name": "a.tsv"},
            "a.tsv: has more than 10,000 bytes once it is unpacked",
        ),
    ],
)
def test_a_job_that_fails_says_why_and_leaves_nothing(
    start_service: StartService, tmp_path: Path, content: bytes, asked: dict[str, Any], words: str
) -> None:
    client = start_service(limits=Limits(memory_pairs=2, unpacked_bytes=10_000))
    job = ended(client, sent(client, "own", content, **asked))
    assert job.state == "failed"
    assert job.message is not None
    assert words in job.message
    assert str(tmp_path) not in job.message
    assert left_by(tmp_path / "data") == {"job.json"}
    assert client.get("/v1/domains/own").status_code == 404


@pytest.mark.parametrize(
    ("send", "status", "words"),
    [
        (lambda client: client.post("/v1/domains/own/memories", content=b""), 422, "found nothing"),
        (lambda client: client.post("/v1/domains/own/memories?name=../x", content=b"a\tb"), 422, "slashes"),
        (lambda client: client.post("/v1/domains/Own!/memories", content=b"a\tb"), 422, "a-z"),
        (lambda client: client.post("/v1/domains/base/memories", content=b"a\tb"), 409, "no segments"),
        (lambda client: client.post("/v1/domains/own/memories", content=b"a\tb" * 99), 413, "at most 100 bytes"),
        (lambda client: client.post("/v1/domains/own/memories", content=iter([b"a\tb"] * 99)), 413, "at most 100"),
        (lambda client: client.get("/v1/jobs/0123"), 404, "no job"),
        (lambda client: client.delete("/v1/jobs/..%2f"), 404, ""),
    ],
)
def test_what_is_refused_leaves_nothing(
    start_service: StartService, tmp_path: Path, send: Callable[[TestClient], Any], status: int, words: str
) -> None:
    client = start_service(limits=Limits(upload_bytes=100))
    answer = send(client)
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text
    assert list((tmp_path / "data/jobs").iterdir()) == []


def test_jobs_wait_are_cancelled_and_go_on_after_a_restart(
    start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "start_process", idle)
    client: Any = start_service(limits=Limits(waiting_jobs=2))
    first = sent(client, "one", TABLE, name="a.tsv")
    while client.get(f"/v1/jobs/{first}").json()["state"] != "running":
        time.sleep(0.02)
    second, third = sent(client, "two", TABLE, name="a.tsv"), sent(client, "one", "x\ty\n", name="b.tsv")
    refused = client.post("/v1/domains/four/memories", content=TABLE)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_jobs")
    assert client.delete(f"/v1/jobs/{second}").json()["state"] == "cancelled"
    assert client.delete(f"/v1/jobs/{second}").json()["state"] == "cancelled"
    client.app.state.service.close()
    # The service ended while a job ran and another waited. A killed one leaves the same, and half a memory.
    (tmp_path / "data/jobs/0123456789abcdef").mkdir()
    (tmp_path / "data/jobs/0123456789abcdef/memory.tsv").write_text("half")
    record = json.loads((tmp_path / "data/jobs" / first / "job.json").read_text())
    assert record["state"] == "running"
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    again = start_service()
    assert ended(again, first).state == "done"
    assert ended(again, third).adding
    assert ended(again, second).state == "cancelled"
    assert translated(again, "one", "Satz 3 hier") == "sentence 3 here"
    assert translated(again, "one", "x") == "y"
    assert left_by(tmp_path / "data") == {"job.json"}


def test_a_running_job_is_cancelled(
    start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "start_process", idle)
    client = start_service()
    number = sent(client, "one", TABLE, name="a.tsv")
    while client.get(f"/v1/jobs/{number}").json()["state"] != "running":
        time.sleep(0.02)
    client.delete(f"/v1/jobs/{number}")
    assert ended(client, number).state == "cancelled"
    assert left_by(tmp_path / "data") == {"job.json"}


@pytest.mark.parametrize("adding", [False, True])
def test_killed_between_any_two_steps_nothing_is_lost_or_doubled(
    start_service: StartService, served_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adding: bool
) -> None:
    """The record is put back to what each step left, as if the service was killed before it wrote the next one."""
    left: list[Job] = []
    save = JobRecords.save

    def kept(self: JobRecords, job: Job) -> None:
        left.append(job)
        save(self, job)

    monkeypatch.setattr(JobRecords, "save", kept)
    monkeypatch.setattr(JobRecords, "clear", lambda *_: None)
    stores = {"own": served_store} if adding else {}
    client = start_service(stores=stores)
    before = Datastore.open(served_store).manifest.live_sentences if adding else 0
    number = sent(client, "own", TABLE, name="a.tsv")
    assert ended(client, number).state == "done"
    store = served_store if adding else tmp_path / "data/domains/own"
    steps = [job for job in left if job.state == "running"]
    assert {job.stage for job in steps} == {"building", *(("publishing", "indexing") if adding else ("tuning",))}
    for job in steps:
        (tmp_path / "data/jobs" / number / "job.json").write_text(json.dumps(asdict(job)))
        again = start_service(stores=stores)
        assert ended(again, number).state == "done"
        assert Datastore.open(store, verify=True).manifest.live_sentences == before + 6
        assert translated(again, "own", "Satz 3 hier") == "sentence 3 here"


def test_a_process_that_dies_is_told_of(start_service: StartService, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(command: list[str], **options: Any) -> warm.Popen:
        return warm.Popen([command[0], "-c", "import os; os.kill(os.getpid(), 9)"], **options)

    monkeypatch.setattr(child_process, "start_process", dying)
    client = start_service()
    job = ended(client, sent(client, "one", TABLE, name="a.tsv"))
    assert (job.state, job.message) == (
        "failed",
        "signal 9 ended the process of the job; perhaps memory was short",
    )


def test_without_a_data_directory_no_memory_is_taken(tmp_path: Path, tiny_translator: Any) -> None:
    from knnmt.service.config import ServiceConfig
    from knnmt.service.http.app import make_app
    from knnmt.service.service import Service

    with TestClient(make_app(Service(ServiceConfig(), tiny_translator)), base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/domains/own/memories", content=TABLE)
        assert (answer.status_code, answer.json()["code"]) == (409, "no_data_directory")
        assert client.get("/v1/jobs").json() == {"jobs": []}


def test_a_new_domain_is_served_while_it_is_tuned(
    start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured is told of; a kill in the midst of the tuning loses nothing."""

    def start(*given: Any, **options: Any) -> warm.Popen:
        started.append(warm.Popen(*given, **options))
        return started[-1]

    def served_and_killed(self: Domains, name: str) -> Domain:
        made = take_in(self, name)
        started[-1].kill()
        return made

    started: list[warm.Popen] = []
    take_in = Domains.take_in
    client: Any = start_service()
    pairs = some_pairs(420)
    write_tmx(tmp_path / "m.tmx", pairs, "de", "en")
    with monkeypatch.context() as patched:
        patched.setattr(child_process, "start_process", start)
        patched.setattr(Domains, "take_in", served_and_killed)
        number = sent(client, "own", (tmp_path / "m.tmx").read_bytes(), name="m.tmx")
        assert ended(client, number).state == "failed"
    record = tmp_path / "data/jobs" / number / "job.json"
    store = tmp_path / "data/domains/own"
    assert is_unfinished(store)
    assert 300 < Datastore.open(store).manifest.sentences < 420
    assert translated(client, "own", pairs[0].source)
    client.app.state.service.close()
    (tmp_path / "data/jobs" / number / "memory.tmx").write_bytes((tmp_path / "m.tmx").read_bytes())
    left = {**json.loads(record.read_text()), "state": "running", "message": None, "ended": None}
    assert left["stage"] == "tuning"
    record.write_text(json.dumps(left))
    again = start_service()
    job = ended(again, number)
    assert (job.state, job.adding, job.done, job.of) == ("done", False, 420, 420), job
    labels = [line[:11].strip() for line in job.summary]
    assert labels[-2] in ("better", "no gain", "worse", "")
    assert labels[-1] in ("adapted", "made")
    assert str(tmp_path) not in "".join(job.summary)
    assert not is_unfinished(store)
    assert Datastore.open(store, verify=True).manifest.live_sentences == 420
    assert left_by(tmp_path / "data") == {"job.json"}
