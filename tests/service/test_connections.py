"""Connections over real sockets: whoever sends half a request or reads no answer keeps nobody else out."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from knnmt.service.config import Limits
from knnmt.service.http.connections import Connections

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\nhal"
ANSWER = b"x" * (1 << 24)  # more than the system buffers


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads what is sent, and answers it, much or little."""
    sent, more = b"", True
    while more:
        message = await receive()
        sent, more = sent + message.get("body", b""), message.get("more_body", False)
    body = {"/large": ANSWER, "/echo": sent}.get(scope["path"], b".")
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(connections: Connections) -> Iterator[int]:
    """The port of a server with these connections."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    config = uvicorn.Config(
        application,
        http=connections.protocol,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
        log_config=None,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def connected(stack: ExitStack, port: int, address: str = "127.0.0.1") -> socket.socket:
    """A connection from one of this machine's addresses."""
    made = stack.enter_context(socket.socket())
    made.settimeout(60)
    made.bind((address, 0))
    made.connect(("127.0.0.1", port))
    return made


def is_served(port: int, address: str) -> bool:
    with ExitStack() as stack:
        connection = connected(stack, port, address)
        connection.sendall(GET)
        return connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", GET[:9], HALF, LARGE * 2])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_connections_that_wait_for_their_clients_make_room(sent: bytes, address: str) -> None:
    """No time limit is over, and 127.0.0.1 has no share, because it may be a proxy."""
    connections = Connections(Limits(connections=40, address_connections=10))
    with serving(connections) as port, ExitStack() as stack:
        for _ in range(100):
            connected(stack, port, address).sendall(sent)
        assert all(is_served(port, f"127.0.0.{3 + number % 3}") for number in range(60))
        assert len(connections) <= 41


def test_connections_of_an_address_over_its_share_wait() -> None:
    connections = Connections(Limits(connections=40, address_connections=3))
    with serving(connections) as port, ExitStack() as stack:
        many = [connected(stack, port, "127.0.0.2") for _ in range(5)]
        for each in many:
            each.sendall(GET)
        assert all(each.recv(1 << 16).startswith(b"HTTP/1.1 200") for each in many[:3])
        assert is_served(port, "127.0.0.4")
        assert select.select(many[3:], [], [], 0.1)[0] == []
        for gone, served in ((1, 3), (0, 4)):
            many[gone].close()
            assert many[served].recv(1 << 16).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("address", ["127.0.0.2", "127.0.0.3"])
def test_others_are_answered_while_a_body_in_chunks_of_one_byte_is_read(address: str) -> None:
    """Such a body takes seconds for each megabyte."""
    count = 200_000
    slow = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * count
    with serving(Connections(Limits())) as port, ExitStack() as stack:
        first = connected(stack, port, "127.0.0.2")
        sending = Thread(target=lambda: first.sendall(slow + b"0\r\n\r\n"))
        sending.start()
        for _ in range(10):
            assert is_served(port, address)
        assert select.select([first], [], [], 0)[0] == []  # it is not read yet
        sending.join()
        assert first.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_answers_that_nobody_reads_have_a_limit_of_memory() -> None:
    """Whoever reads 1,000 bytes a second is in time, and could hold any number of answers for hours."""
    connections = Connections(Limits(unread_bytes=4 * len(ANSWER), head_seconds=0.1))
    with serving(connections) as port, ExitStack() as stack:
        modest = connected(stack, port, "127.0.0.3")
        greedy = [connected(stack, port, "127.0.0.2") for _ in range(8)]
        wait_for(lambda: len(connections) == 9)
        for each in (modest, *greedy):
            each.sendall(LARGE)
        wait_for(lambda: len(connections) <= 5)
        said = 0
        while said < len(ANSWER):
            said += len(modest.recv(1 << 20))
            assert said


@pytest.mark.parametrize("sent", [b"", GET[:9], HALF, GET])
def test_connections_that_are_gone_take_no_memory(sent: bytes) -> None:
    """Also before Python looks for cycles: thousands can go until it does."""
    connections = Connections(Limits())
    gc.disable()
    try:
        with serving(connections) as port, ExitStack() as stack:
            clients = [connected(stack, port) for _ in range(10)]
            for each in clients:
                each.sendall(sent)
            wait_for(lambda: len(connections) == 10)
            if sent == GET:
                assert all(each.recv(1 << 16) for each in clients)
            known = [weakref.ref(each) for each in connections]
            for each in clients:
                each.close()
            wait_for(lambda: len(connections) == 0)
            assert is_served(port, "127.0.0.1")
            assert not any(each() is not None for each in known)
    finally:
        gc.enable()


@pytest.mark.parametrize("chunk", [1, 3_000, 100_000])
def test_a_body_in_chunks_arrives_whole(chunk: int) -> None:
    sent = b"".join(b"%x\r\n%s\r\n" % (chunk, bytes([65 + number % 26]) * chunk) for number in range(300_000 // chunk))
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(Connections(Limits())) as port, ExitStack() as stack:
        connection = connected(stack, port, "127.0.0.2")
        connection.sendall(head + sent + b"0\r\n\r\n" + GET)
        said = b""
        while said.count(b"HTTP/1.1 200") < 2:
            said += connection.recv(1 << 20)
    body = said.partition(b"\r\n\r\n")[2].partition(b"HTTP/1.1")[0]
    assert body == b"".join(bytes([65 + number % 26]) * chunk for number in range(300_000 // chunk))


@pytest.mark.parametrize("request_", [LARGE, LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
def test_whoever_reads_nothing_is_closed(request_: bytes) -> None:
    """Also if the application has sent everything. Whoever reads slowly is served."""
    connections = Connections(Limits(reader_seconds=0.3, idle_seconds=60))
    with serving(connections) as port, ExitStack() as stack:
        unread, read = connected(stack, port), connected(stack, port)
        for each in (unread, read):
            each.sendall(request_)
        began, received = time.monotonic(), 0
        while received < len(ANSWER):
            piece = read.recv(1 << 16)
            assert piece
            received += len(piece)
            time.sleep(0.002)
        assert time.monotonic() - began > 0.4
        wait_for(lambda: len(connections) <= 1)


def test_a_connection_waits_for_its_first_request_and_between_two() -> None:
    connections = Connections(Limits(head_seconds=0.2, idle_seconds=0.2))
    with serving(connections) as port, ExitStack() as stack:
        sent, half = connected(stack, port), connected(stack, port)
        sent.sendall(GET)
        half.sendall(GET[:9])
        assert sent.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert sent.recv(1 << 16) == half.recv(1 << 16) == b""


def test_what_comes_after_a_request_that_was_none_raises_nothing() -> None:
    """Such a request made a traceback of a hundred lines in the log, which took the event loop milliseconds."""
    written = bytearray()
    transport = SimpleNamespace(
        set_write_buffer_limits=lambda high: None,
        get_extra_info=lambda name: None,
        get_write_buffer_size=lambda: 0,
        write=written.extend,
        close=lambda: None,
        is_closing=lambda: False,
    )
    config = uvicorn.Config(application, lifespan="off", log_config=None)
    config.load()

    async def receive_twice() -> None:
        protocol: Any = Connections(Limits()).protocol
        connection = protocol(config=config, server_state=ServerState(), app_state={})
        connection.connection_made(transport)
        for _ in range(2):
            connection.data_received(b"\x16\x03\x01\r\n\r\n")

    asyncio.run(receive_twice())
    assert written.count(b"HTTP/1.1 400") == 1


def test_a_connection_that_closes_costs_the_same_however_many_wait() -> None:
    """The connections that wait are of another address, which has no place for them."""
    calls = []
    for waiting in (20, 200):
        connections = Connections(Limits(connections=400, address_connections=3))
        with serving(connections) as port, ExitStack() as stack:
            for _ in range(waiting + 3):
                connected(stack, port, "127.0.0.2")
            other = connected(stack, port, "127.0.0.3")
            wait_for(lambda: len(connections) == waiting + 4)  # noqa: B023 - called at once
            [gone] = [each for each in connections if each.address == "127.0.0.3"]
            counted: list[str] = []
            sys.setprofile(lambda _frame, event, _: counted.append(event) if event == "call" else None)  # noqa: B023
            try:
                connections.remove(gone)
            finally:
                sys.setprofile(None)
            calls.append(len(counted))
            other.close()
    assert calls[1] <= calls[0] + 5
