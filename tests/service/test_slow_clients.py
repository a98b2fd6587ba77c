"""Clients that are slow on purpose, over a socket."""

from __future__ import annotations

import select
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest
import uvicorn

from knnmt.service.access import new_key
from knnmt.service.config import Limits, ServiceConfig
from knnmt.service.http.app import make_app
from knnmt.service.http.connections import Connections
from knnmt.service.service import Service
from knnmt.translator.translator import Translator

HEAD = b"POST /v1/sentences HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n"
BODY = b'{"text": "a. b"}'


@pytest.fixture
def port(tiny_translator: Translator) -> Iterator[int]:
    limits = Limits(head_seconds=0.3, idle_seconds=0.3, body_seconds=0.3)
    with serving(ServiceConfig(limits=limits), tiny_translator) as port:
        yield port


@contextmanager
def serving(config: ServiceConfig, translator: Translator) -> Iterator[int]:
    """The port of a service."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = make_app(Service(config, translator))
    protocol = Connections(config.limits).protocol
    server = uvicorn.Server(
        uvicorn.Config(app, http=protocol, log_config=None, lifespan="on", timeout_graceful_shutdown=5)
    )
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


def answer(connection: socket.socket) -> bytes:
    """All that comes until the service closes the connection."""
    said = b""
    while piece := connection.recv(1 << 16):
        said += piece
    return said


@pytest.mark.parametrize("sent", [b"", b"GET /he", HEAD[:-2], HEAD + BODY + b"GET"])
def test_the_head_of_a_request_must_come_within_a_time(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent)
        said = answer(connection)
    assert said.count(b"HTTP/1.1 200") == (BODY in sent)


def test_a_body_that_stops_coming_is_not_waited_for(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(HEAD + BODY[:5])
        said = answer(connection)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"the body stopped" in said


def test_a_body_that_comes_in_drops_is_not_waited_for(port: int) -> None:
    """Each in time, but all of them would take far too long: else such a client holds its place for ever."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(HEAD)
        for number in range(len(BODY) - 1):
            time.sleep(0.1)
            if select.select([connection], [], [], 0)[0]:
                break
            connection.sendall(BODY[number : number + 1])
        assert answer(connection).startswith(b"HTTP/1.1 408")
        assert number < len(BODY) - 2


def test_two_lengths_end_the_connection(port: int) -> None:
    """What follows may be another's request for a proxy in front."""
    both = HEAD.replace(b"Content-Length: 16", b"Content-Length: 16\r\nTransfer-Encoding: chunked")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(both + b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = answer(connection)
    assert said.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in said.lower()
    assert said.count(b"HTTP/1.1") == 1


def test_who_hangs_up_is_no_failure_of_ours(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(HEAD.replace(b"/v1/sentences", b"/v1/documents") + BODY[:5])
    counted = b""
    while b'route="/v1/documents"' not in counted:  # the request is over
        with urlopen(f"http://127.0.0.1:{port}/metrics") as metrics:
            counted = metrics.read()
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_requests_behind_each_other_are_all_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall((HEAD + BODY) * 3)
        said = answer(connection)
    assert said.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize(
    ("route", "status"),
    [
        ("POST /v1/domains/new/memories?name=a.tsv", 401),
        ("PUT /v3/translation_memories/files/x", 404),
        ("POST /v1/documents", 413),
        ("POST /translate_file", 413),
        ("POST /v1/translate", 413),
    ],
)
def test_whoever_has_no_key_leaves_nothing_on_disk(
    tiny_translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str, status: int
) -> None:
    """300 MB are announced, and some of them sent; the answer comes at once."""
    temporary, data, keys = tmp_path / "temporary", tmp_path / "data", tmp_path / "keys.json"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    new_key(keys, "owner", "admin")
    with serving(ServiceConfig(data=data, keys=keys), tiny_translator) as port:
        before = sorted(data.rglob("*"))
        head = f"{route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {300 << 20}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(head.encode())
            said = connection.recv(1 << 16)
        assert said.startswith(f"HTTP/1.1 {status}".encode()), said
        for length in (1 << 20, 60 << 20):
            head = f"{route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(head.encode() + bytes(2 << 18))
                said = connection.recv(1 << 16)
            expected = (b"401", b"403", b"413") if "v1/translate" in route else (b"401", b"403", b"404")
            assert said.split()[1] in expected, said
        assert sorted(data.rglob("*")) == before
        assert list(temporary.iterdir()) == []
