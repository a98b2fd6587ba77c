"""Clients that are slow on purpose, over a socket."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from threading import Thread
from urllib.request import urlopen

import pytest
import uvicorn

from knnmt.service import guard
from knnmt.service.app import make_app
from knnmt.service.config import ServiceConfig
from knnmt.service.running import Connection
from knnmt.service.service import Service
from knnmt.translator.translator import Translator

HEAD = b"POST /v1/sentences HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n"
BODY = b'{"text": "a. b"}'


@pytest.fixture
def port(tiny_translator: Translator, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(Connection, "head_seconds", 0.3)
    monkeypatch.setattr(guard, "_PIECE_SECONDS", 0.3)
    listening = socket.create_server(("127.0.0.1", 0))
    app = make_app(Service(ServiceConfig(), tiny_translator))
    server = uvicorn.Server(uvicorn.Config(app, http=Connection, log_config=None, lifespan="on"))
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
