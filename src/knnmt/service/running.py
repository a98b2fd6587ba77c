"""Runs the service: uvicorn, signals, and a shutdown that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from knnmt.service.app import make_app
from knnmt.service.service import Service

_DRAIN_SECONDS = 60  # the longest that requests may still take after a signal to end
_IDLE_SECONDS = 30  # the longest that a connection may stay open between two requests
_WAITING = 2048  # connections that are not yet accepted
_CONNECTIONS = 1_000  # open connections; each needs one of the process's file descriptors


class Connection(H11Protocol):
    """uvicorn's connection, which limits the length of a request's head; here the head must also arrive within a time
    limit.

    Otherwise clients that open connections and send nothing, or a letter now and then, could use up all connections.
    """

    head_seconds = 30.0
    _waiting_for_head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # otherwise the next request is already there
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._waiting_for_head = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting_for_head is not None:
            self._waiting_for_head.cancel()


class _Server(uvicorn.Server):
    """uvicorn's server, which tells the service at once when it has to end."""

    service: Service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.ready = False
        super().handle_exit(sig, frame)


def run(service: Service, begun: Callable[[str], None]) -> None:
    """Answer requests until a signal; then finish those that have started. begun: is called with the address"""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = service.config
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((config.host, config.port))
    listening.listen(_WAITING)  # whoever gets the address may send requests at once
    host = f"[{config.host}]" if family is socket.AF_INET6 else config.host
    server = _Server(
        uvicorn.Config(
            make_app(service),
            http=Connection,
            log_config=None,
            access_log=False,  # it would contain what people translate, if that is part of a URL
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            limit_concurrency=_CONNECTIONS,
            backlog=_WAITING,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
    )
    server.service = service
    begun(f"http://{host}:{listening.getsockname()[1]}")
    # At the end uvicorn raises the signal again for an earlier handler; there is none here.
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        listening.close()
