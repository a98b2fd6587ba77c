"""What a service leaves on the disk: nothing that others can read, nothing of killed services, and whole records."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.service import child_process
from knnmt.service.config import Limits
from knnmt.service.exchanges import Exchanges
from knnmt.service.job_records import Job, JobRecords
from knnmt.service.memory_work import MemoryWork, do
from knnmt.service.problems import Problem
from knnmt.service.scratch import Scratch
from knnmt.translator.translator import Translator
from support import warm
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
TABLE = "".join(f"Satz {number} hier\tsentence {number} here\n" for number in range(6))
LONG = "wort " * 3000


@pytest.fixture(autouse=True)
def _quick_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "start_process", warm.Popen)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of the system's temporary directory."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process that lets everybody read and write what it makes."""
    before = os.umask(0)
    yield
    os.umask(before)


def ended(client: TestClient, number: str) -> Any:
    while (told := client.get(f"/v1/jobs/{number}").json())["state"] in ("waiting", "running"):
        time.sleep(0.02)
    return told


def without_times(line: str) -> str:
    return re.sub(r"\d+ s\b", "… s", line)


def test_a_job_whose_process_was_killed_after_the_build_keeps_its_summary(
    start_service: StartService, tiny_translator: Translator, tmp_path: Path
) -> None:
    """The store was published, and the report was lost. What an earlier attempt reported is not reported twice."""
    records = JobRecords(tmp_path / "data")
    job = Job(
        id="0" * 16,
        domain="own",
        name="a.tsv",
        file="memory.tsv",
        format=None,
        skip_malformed=True,
        unfinished=False,
        by="",
        created=time.time(),
        state="running",
        attempts=1,
        summary=("of an attempt that was interrupted",),
    )
    records.directory(job.id).mkdir()
    records.memory(job).write_text(f"{TABLE}malformed\n \tempty\n{LONG}\tlong\n")
    told: list[dict[str, Any]] = []
    work = MemoryWork(
        file=str(records.memory(job)),
        name=job.name,
        store=str(records.store(job)),
        domain=None,
        model=tiny_translator.engine.name,
        device="cpu",
        dtype="float32",
        source_language="de",
        target_language="en",
        format=None,
        skip_malformed=True,
        unfinished=False,
        pairs=100,
        unpacked_bytes=1 << 20,
    )
    do(work, told.append)
    reported = [line for each in told for line in each.get("read", ())]
    assert {line.split()[0] for line in reported} >= {"read", "left", "malformed"}
    assert any("positions" in line for line in reported)
    records.save(job)
    resumed = ended(start_service(), job.id)
    assert resumed["state"] == "done"
    for path, name in ((records.memory(job), job.name), (records.store(job), job.domain)):
        reported = [line.replace(str(path), name) for line in reported]
    assert list(map(without_times, resumed["summary"])) == list(map(without_times, reported))


def test_an_address_is_used_once(start_service: StartService, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start_service(limits=Limits(waiting_jobs=50))
    file = {"source_file": {"file_name": "a.tsv", "content_length": len(TABLE)}}
    begun = client.post("/v3/translation_memories/import", json=file).json()
    service = client.app.state.service  # type: ignore[attr-defined]
    receive = service.jobs.receive

    def slowly(name: str) -> Any:
        time.sleep(0.3)
        return receive(name)

    monkeypatch.setattr(service.jobs, "receive", slowly)
    with ThreadPoolExecutor(6) as threads:
        sending = [threads.submit(client.put, begun["upload_url"], content=TABLE.encode()) for _ in range(6)]
    assert sorted(each.result().status_code for each in sending) == [200, *[400] * 5]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    again = client.put(begun["upload_url"], content=TABLE.encode())
    assert "already been sent" in again.json()["message"]


def test_an_address_can_be_used_again_after_a_failure() -> None:
    exchanges = Exchanges(None)
    begun = exchanges.begin("import", "somebody", "own")
    with pytest.raises(KeyError), exchanges.receiving(begun.id):
        raise KeyError
    with exchanges.receiving(begun.id):
        exchanges.sent(begun.id, "0" * 16)
    with pytest.raises(Problem, match="already been sent"), exchanges.receiving(begun.id):
        pass


def test_a_service_removes_what_killed_ones_left_and_nothing_else(temporary: Path) -> None:
    code = (
        "import sys, time, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from knnmt.service.scratch import Scratch\n"
        "print(Scratch().directory, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(temporary)]
    with (
        warm.Popen(command, stdout=subprocess.PIPE, text=True) as killed,
        warm.Popen(command, stdout=subprocess.PIPE, text=True) as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        left, used = Path(killed.stdout.readline().strip()), Path(living.stdout.readline().strip())
        (left / "memory.tmx").write_text("secret")
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(60)
        others = [temporary / "somebody's", temporary / "knnmt-service-link", temporary / "knnmt-service-file"]
        others[0].mkdir()
        others[1].symlink_to(others[0])
        others[2].touch()
        scratch = Scratch()
        assert sorted(temporary.iterdir()) == sorted([used, *others])
        mine = scratch.file(".tmx")
        mine.touch()
        Scratch().close()
        assert mine.exists()
        assert mine.parent.stat().st_mode & 0o077 == 0
        scratch.close()
        assert sorted(temporary.iterdir()) == sorted([used, *others])
        living.kill()


def test_services_that_start_together_keep_their_directories(temporary: Path) -> None:
    """A directory that is made, but not yet locked, may be removed by another service, and is made again."""
    made: list[Path] = []

    def start() -> None:
        scratch = Scratch()
        made.append(scratch.directory)

    for _ in range(20):
        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({*made}) == 80


@pytest.mark.usefixtures("open_umask")
def test_the_data_directory_is_private_whatever_the_process_permits(
    start_service: StartService, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    client = start_service()
    made = client.post("/v1/domains/own/memories", params={"name": "a.tsv"}, content=TABLE).json()
    assert ended(client, made["id"])["state"] == "done"
    added = client.post("/v1/domains/own/memories", params={"name": "b.tsv"}, content="Ganz neu\tquite new\n").json()
    assert ended(client, added["id"])["state"] == "done"
    corrected = {"segments": [{"source": "Satz 3 hier", "target": "phrase 3"}]}
    assert client.put("/v1/domains/own/segments", json=corrected).status_code < 300
    glossary = {"name": "n", "source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}
    assert client.post("/v2/glossaries", json=glossary).status_code < 300
    file = {"source_file": {"file_name": "a.tsv", "content_length": 9}}
    assert client.post("/v3/translation_memories/import", json=file).status_code == 201
    client.app.state.service.usage.save()  # type: ignore[attr-defined]
    found = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in [data, *data.rglob("*")]}
    assert {mode for path, mode in found.items() if (tmp_path / path).is_dir()} == {0o700}, found
    assert {mode for path, mode in found.items() if (tmp_path / path).is_file()} == {0o600}, found
    assert len(found) > 12
