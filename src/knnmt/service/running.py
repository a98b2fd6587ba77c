"""Running the service: uvicorn, signals, and an end that loses nothing."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from knnmt.service.app import make_app
from knnmt.service.service import Service

_DRAIN_SECONDS = 60  # that requests may still take when the service is told to end
_IDLE_SECONDS = 30  # that a connection may stay open between two requests


class _Server(uvicorn.Server):
    """As uvicorn's, but that the service says at once that it ends."""

    service: Service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.ready = False
        super().handle_exit(sig, frame)


def run(service: Service, begun: Callable[[str], None]) -> None:
    """Answer requests until a signal says to end; then those that were begun are answered. begun: told the address"""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = service.config
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((config.host, config.port))
    host = f"[{config.host}]" if family is socket.AF_INET6 else config.host
    server = _Server(
        uvicorn.Config(
            make_app(service),
            http="h11",  # it bounds what the head of a request may have
            log_config=None,
            access_log=False,  # it would hold what people translate, where that stands in an address
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
    )
    server.service = service
    begun(f"http://{host}:{listening.getsockname()[1]}")
    # uvicorn raises the signal again when all is done, for whoever handled it before: here, nobody has to.
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        listening.close()
