"""`knnmt serve` as a process: it drains when told to end, and loses nothing that it answered when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.service import child_process
from knnmt.service.access import read_keys
from knnmt.service.memory_work import MemoryWork
from support import warm
from support.datastore_pairs import some_pairs

KILLS = int(os.environ.get("KNNMT_KILLS", "200"))


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Path:
    return Datastore.build(tmp_path / "s", some_pairs(20), tiny).path


@contextmanager
def served(checkpoint: Path, store: Path, *more: str) -> Iterator[tuple[warm.Popen, int]]:
    """A service in a process of its own, and its port."""
    command = [sys.executable, "-m", "knnmt", "serve", "-m", str(checkpoint), "--store", f"small={store}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with warm.Popen([*command, "--port", "0", *more], stderr=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline().decode()
            assert said.startswith("knnmt: serving on http://127.0.0.1:"), said + process.stderr.read().decode()
            yield process, int(said.partition("127.0.0.1:")[2].partition(";")[0])
        finally:
            process.kill()


def ask(port: int, method: str, path: str, content: object = None) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = content if content is None or isinstance(content, bytes) else json.dumps(content)
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def when_it_listens(port: int) -> None:
    while True:
        with suppress(ConnectionError):
            assert ask(port, "GET", "/ready")[0] == 200
            return


def test_told_to_end_it_answers_what_it_was_asked(tiny_checkpoint: Path, store: Path) -> None:
    with served(tiny_checkpoint, store) as (process, port), ThreadPoolExecutor(4) as clients:
        when_it_listens(port)
        texts = [[f"Satz {letter} {number}" for number in range(8)] for letter in "abcd"]
        asked = [clients.submit(ask, port, "POST", "/v1/translate", {"texts": each}) for each in texts]
        while ask(port, "GET", "/ready")[1]["waiting"] < 20:
            assert not all(each.done() for each in asked)
        process.send_signal(signal.SIGTERM)
        answers = [each.result() for each in asked]
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert [status for status, _ in answers] == [200] * 4
    assert all(len(content["translations"]) == 8 for _, content in answers)


def kill_under_load(checkpoint: Path, store: Path, chance: Random, run: int) -> set[str]:
    """Serve, write and translate from several sides, kill the process; the targets that were answered for."""
    answered: list[str] = []

    def write(port: int, writer: int) -> None:
        with suppress(OSError, HTTPException, ValueError):
            for number in range(1000):
                target = f"t{run} {writer} {number}"
                method = "PUT" if number % 2 else "POST"
                pairs = {"segments": [{"source": f"q{run} {writer} {number}", "target": target}]}
                if ask(port, method, "/v1/domains/small/segments", pairs)[0] in (200, 201):
                    answered.append(target)

    def read(port: int) -> None:
        with suppress(OSError, HTTPException, ValueError):
            for number in range(1000):
                ask(port, "POST", "/v1/translate", {"texts": [f"Satz {number}", "Wort"], "beam": 1})

    with served(checkpoint, store) as (process, port):
        when_it_listens(port)
        sides = [Thread(target=write, args=(port, writer)) for writer in range(3)] + [Thread(target=read, args=(port,))]
        for side in sides:
            side.start()
        while len(answered) < 2:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.2)
        process.kill()
        for side in sides:
            side.join()
    return set(answered)


def assert_nothing_is_lost(checkpoint: Path, store: Path, kills: int) -> None:
    chance, answered = Random(kills), set[str]()
    for run in range(kills):
        answered |= kill_under_load(checkpoint, store, chance, run)
        opened = Datastore.open(store, verify=True)
        lost = answered - {pair.target for pair in opened.pairs()}
        assert not lost, f"after kill {run}: {len(lost)} of {len(answered)} are lost"


def test_killed_it_has_lost_nothing_that_it_answered(tiny_checkpoint: Path, store: Path) -> None:
    assert_nothing_is_lost(tiny_checkpoint, store, 10)


@pytest.mark.soak
def test_killed_often_it_has_lost_nothing_that_it_answered(tiny_checkpoint: Path, store: Path) -> None:
    assert_nothing_is_lost(tiny_checkpoint, store, KILLS)


def test_keys_are_made_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    made = CliRunner().invoke(app, ["serve-key", str(file), "me", "--role", "write", "--domain", "law"])
    assert made.exit_code == 0
    [key] = read_keys(file)
    assert (key.name, key.role, key.domains) == ("me", "write", ("law",))
    assert made.output.startswith("knnmt_")
    again = CliRunner().invoke(app, ["serve-key", str(file), "me"])
    assert again.exit_code != 0
    open_to_all = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0"])
    assert "serve-key" in str(open_to_all.exception)


def kill_with_a_job(checkpoint: Path, store: Path, chance: Random, kills: int) -> None:
    """Send a memory, kill the service again and again while the job goes on, and look at what became of it."""
    data = store.with_name(f"data{kills}")
    lines = "".join(f"Satz {number} hier {'ja ' * (number % 7)}\tline {number}\n" for number in range(3000))
    number = None
    for run in range(kills + 1):
        with served(checkpoint, store, "--data", str(data)) as (process, port):
            when_it_listens(port)
            if number is None:
                made = ask(port, "POST", "/v1/domains/small/memories?name=a.tsv", lines.encode())
                assert made[0] == 202, made
                number = made[1]["id"]
            if run < kills:
                time.sleep(chance.random() * 2)
                process.kill()
                continue
            while (job := ask(port, "GET", f"/v1/jobs/{number}")[1])["state"] in ("waiting", "running"):
                time.sleep(0.05)
            assert job["state"] == "done", job
            assert (
                ask(port, "POST", "/v1/translate", {"texts": ["Satz 7 hier"]})[1]["translations"][0]["text"] == "line 7"
            )
    opened = Datastore.open(store, verify=True)
    assert sorted(pair.origin for pair in opened.pairs() if pair.origin.startswith("a.tsv")) == sorted(
        f"a.tsv#{line}" for line in range(1, 3001)
    )


def test_the_process_of_a_job_ends_with_the_service(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memory.tsv")
    work = MemoryWork(
        unpacked_bytes=1 << 20,
        file=str(tmp_path / "memory.tsv"),  # nobody writes into it: the process waits
        name="a.tsv",
        store="s",
        domain=None,
        model="de-en",
        device="cpu",
        dtype="float32",
        source_language="de",
        target_language="en",
        format="tsv",
        skip_malformed=False,
        unfinished=False,
        pairs=10,
    )
    command = [sys.executable, "-P", "-m", "knnmt.service.memory_work"]
    pipe = subprocess.PIPE
    with warm.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(work.line())
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline() == b'{"done": 0, "of": 0}\n'
        process.stdin.close()
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize("service_ends", [False, True])
def test_a_process_beside_the_service_ends_by_itself_or_with_it(service_ends: bool) -> None:
    """By itself without a word: an interpreter that ends while a thread waits at sys.stdin aborts."""
    lines = [
        "from knnmt.service.child_process import end_with_the_service",
        "import sys, time",
        "sys.stdin.buffer.readline()",
        "end_with_the_service()",
        "print('begun', flush=True)",
        f"time.sleep({60 if service_ends else 0.2})",
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"work\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"begun\n"
        if service_ends:
            process.stdin.close()
        assert process.wait(60) == (1 if service_ends else 0)
        assert process.stderr.read() == b""


@pytest.mark.soak
def test_killed_often_it_goes_on_with_a_job(tiny_checkpoint: Path, store: Path) -> None:
    for run in range(KILLS // 10):
        kill_with_a_job(tiny_checkpoint, store, Random(run), 5 + run % 4)
        Datastore.open(store).remove(lambda pair: pair.origin.startswith("a.tsv"))


def sent(port: int, numbers: range) -> int:
    """Ask for one text after the other over one connection; how many were answered."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    answered = 0
    for number in numbers:
        text = f"Satz {number % (97 if number % 4 else 19_937)}"  # most are remembered; the others are more than can be
        body = json.dumps({"texts": [text], "beam": 1, "max_tokens": 2})
        connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answered += len(json.loads(answer.read())["translations"]) if answer.status == 200 else 0
    connection.close()
    return answered


HOSTILE: tuple[tuple[str, str, object], ...] = (
    ("POST", "/v1/translate", {"texts": ["%" + "0" * 2_000 + "!", "a" + "." * 2_000], "beam": 1, "max_tokens": 2}),
    ("POST", "/v1/translate", b"[" * 10_000),
    ("POST", "/v1/translate", {"texts": [], "beam": 10**9}),
    ("POST", "/v1/sentences", {"text": "\n" * 10_000}),
    ("POST", "/v1/documents?name=a.po", b'msgid "am________________________________________ (Datum)"\nmsgstr ""\n'),
    ("POST", "/v1/documents?name=a.xlf", b'<?xml version="1.0" encoding="punycode"?><xliff version="1.2"/>'),
    ("POST", "/translate_file", b"a" * 10_000),
    ("POST", "/v1/domains/a/memories?name=a.tsv", b""),
    ("GET", "/translate?q=Ja&langpair=de%7Cen", None),
    ("MADE{}UP", "/metrics", None),
    ("GET", "/made/up/{}", None),
)


def harm(port: int, numbers: range) -> int:
    """Send one hostile request after the other over connections of their own; return how many were answered."""
    answered = 0
    for number in numbers:
        method, path, content = HOSTILE[number % len(HOSTILE)]
        answered += ask(port, method.format(number), path.format(number), content)[0] < 500
    return answered


def memory_of(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    said = connection.getresponse().read().decode()
    connection.close()
    return int(float(said.partition("\nprocess_resident_memory_bytes ")[2].partition("\n")[0]))


def require_flat_memory(checkpoint: Path, store: Path, requests: int, hostile: bool = False) -> None:
    with served(checkpoint, store) as (_, port), ThreadPoolExecutor(4) as clients:
        when_it_listens(port)
        sizes = []
        for part in range(10):
            first = part * requests // 10
            shares = [range(first + client, first + requests // 10, 4) for client in range(4)]
            of_clients = [sent, sent, harm, harm] if hostile else [sent] * 4
            asking = [
                clients.submit(of_client, port, share) for of_client, share in zip(of_clients, shares, strict=True)
            ]
            assert sum(each.result() for each in asking) == requests // 10, "some were lost"
            sizes.append(memory_of(port))
            print(f"{(part + 1) * requests // 10:,} requests: {sizes[-1] / 1e6:.1f} MB")  # shown by pytest -s
    assert sizes[-1] < 1.05 * sizes[2] + (10 << 20), [size >> 20 for size in sizes]


@pytest.mark.soak
def test_memory_stays_flat_over_many_requests(tiny_checkpoint: Path, store: Path) -> None:
    require_flat_memory(tiny_checkpoint, store, 100_000)


@pytest.mark.soak
def test_memory_stays_flat_with_hostile_requests_among_others(tiny_checkpoint: Path, store: Path) -> None:
    require_flat_memory(tiny_checkpoint, store, 20_000, hostile=True)


def test_a_process_of_the_service_has_a_lower_priority_before_it_imports_anything() -> None:
    with child_process.start("this") as process:
        assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
