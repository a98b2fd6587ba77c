"""Clients that are slow on purpose, over a socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from threading import Thread

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
    assert b"no more of the body arrived" in said


def test_requests_behind_each_other_are_all_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall((HEAD + BODY) * 3)
        said = answer(connection)
    assert said.count(b"HTTP/1.1 200") == 3
